//! The objects of a module that was compiled in parts, as one buffer: an archive without a table, which `ar` and `nm` can read.
//!
//! All code that takes objects may be given one. The linker makes one graph of it, under the module's name.

use std::collections::BTreeSet;
use std::sync::Arc;

use object::LittleEndian;
use object::archive::{Header, MAGIC};
use object::elf::{FileHeader64, SHT_SYMTAB};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader as _, SectionHeader as _};

use super::{FileKind, ObjectBuffer};

/// Joins the objects of the parts of a module, in their order. One alone stays as it is.
pub fn join_parts(name: &Arc<str>, parts: &[ObjectBuffer]) -> ObjectBuffer {
    if let [only] = parts {
        return only.clone();
    }
    ObjectBuffer::new(name.clone(), archive_of_parts("o", parts.iter().map(ObjectBuffer::bytes)))
}

/// An archive of parts, in their order. They are called by their numbers, with this extension of one to four letters.
pub fn archive_of_parts<'p>(
    extension: &str,
    parts: impl IntoIterator<Item = &'p [u8], IntoIter: Clone>,
) -> Vec<u8> {
    let parts = parts.into_iter();
    let header_bytes = size_of::<Header>();
    let sizes = parts.clone().map(|part| header_bytes + part.len() + 1);
    let mut joined = Vec::with_capacity(MAGIC.len() + sizes.sum::<usize>());
    joined.extend_from_slice(&MAGIC);
    for (index, part) in parts.enumerate() {
        let member = format!("{index}.{extension}/");
        let size = part.len();
        // Name, time, owner, group, mode, size; no part is as large as ten digits can say.
        joined.extend(format!("{member:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).bytes());
        joined.extend_from_slice(part);
        if size % 2 == 1 {
            joined.push(b'\n');
        }
    }
    joined
}

/// The beginning of the names that the parts of one module have for values that are local to the module; `ir/parts.h` has the same.
pub(crate) const LOCAL_PREFIX: &str = "uruk.local.";

/// A part in which such names are those of the module of this number, and meet no others where several modules are linked by another linker.
/// It stays as it is if it is no object of this machine's format.
///
/// Names keep their lengths, and nothing but bytes of their table changes. `ir/parts.h` says that no other name ends in such a one.
pub fn with_names_of_module(part: &[u8], module: usize) -> Vec<u8> {
    let mut bytes = part.to_vec();
    for name in names_in(part).unwrap_or_default() {
        let end = LOCAL_PREFIX.len() - 1;
        let digits = format!("{module:05}");
        // `uruk.local.x` becomes `uruk.00007.x`.
        bytes[name + end - digits.len()..name + end].copy_from_slice(digits.as_bytes());
    }
    bytes
}

/// Where names of local values are in an object.
fn names_in(part: &[u8]) -> Option<BTreeSet<usize>> {
    let header = FileHeader64::<LittleEndian>::parse(part).ok()?;
    let sections = header.sections(LittleEndian, part).ok()?;
    let symbols = sections.symbols(LittleEndian, part, SHT_SYMTAB).ok()?;
    let (table, _) = sections.section(symbols.string_section()).ok()?.file_range(LittleEndian)?;
    let named = symbols.iter().filter(|symbol| {
        let name = symbols.symbol_name(LittleEndian, symbol);
        name.is_ok_and(|name| name.starts_with(LOCAL_PREFIX.as_bytes()))
    });
    named
        .map(|symbol| Some(usize::try_from(table).ok()? + symbol.st_name.get(LittleEndian) as usize))
        .collect()
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

/// The same as buffers, also of one object.
///
/// # Errors
/// An archive that cannot be read.
#[cfg(feature = "llvm")]
pub(crate) fn buffers_of_parts(object: &ObjectBuffer) -> Result<Vec<ObjectBuffer>, object::read::Error> {
    let Some(parts) = parts(object) else { return Ok(vec![object.clone()]) };
    let start = object.bytes().as_ptr() as usize;
    let parts = parts?.into_iter().filter_map(|part| {
        let at = part.as_ptr() as usize - start;
        object.slice(object.name().clone(), at..at + part.len())
    });
    Ok(parts.collect())
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
