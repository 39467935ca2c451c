//! The objects of a module that was compiled in parts, as one buffer: an archive without a table, which `ar` and `nm` can read.
//!
//! All code that takes objects may be given one. The linker makes one graph of it, under the module's name.

use std::sync::Arc;

use object::archive::{Header, MAGIC};
use object::read::archive::ArchiveFile;

use super::{FileKind, ObjectBuffer};

/// Joins the objects of the parts of a module, in their order. One alone stays as it is.
pub fn join_parts(name: &Arc<str>, parts: &[ObjectBuffer]) -> ObjectBuffer {
    if let [only] = parts {
        return only.clone();
    }
    let header_bytes = size_of::<Header>();
    let sizes = parts.iter().map(|part| header_bytes + part.size_bytes() + 1);
    let mut joined = Vec::with_capacity(MAGIC.len() + sizes.sum::<usize>());
    joined.extend_from_slice(&MAGIC);
    for (index, part) in parts.iter().enumerate() {
        let member = format!("{index}.o/");
        let size = part.size_bytes();
        // Name, time, owner, group, mode, size; no part is as large as ten digits can say.
        joined.extend(format!("{member:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).bytes());
        joined.extend_from_slice(part.bytes());
        if size % 2 == 1 {
            joined.push(b'\n');
        }
    }
    ObjectBuffer::new(name.clone(), joined)
}

/// The objects of a module that was compiled in parts. Nothing if `object` is one object.
pub fn parts(object: &ObjectBuffer) -> Option<Result<Vec<&[u8]>, object::read::Error>> {
    let data = object.bytes();
    if FileKind::of(data) != FileKind::Archive {
        return None;
    }
    let read = || {
        let archive = ArchiveFile::parse(data)?;
        archive.members().map(|member| member?.data(data)).collect()
    };
    Some(read())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_comes_apart_again() {
        let part = |bytes: &[u8]| ObjectBuffer::new("part", bytes.to_vec());
        let name: Arc<str> = "module".into();
        let joined = join_parts(&name, &[part(b"odd"), part(b""), part(b"even")]);
        assert_eq!(&**joined.name(), "module");
        let apart = parts(&joined).expect("parts").expect("an archive");
        assert_eq!(apart, [&b"odd"[..], b"", b"even"]);
        assert!(parts(&join_parts(&name, &[part(b"\x7fELF")])).is_none());
        let cut = joined.slice("cut", 0..joined.size_bytes() - 1).expect("in range");
        parts(&cut).expect("parts").expect_err("cut off");
    }
}
