//! Names: the symbols of a link, and the objects that have DWARF, as debuggers and reports will ask for them.

use uruk_core::sync::Arc;

use crate::debug::{DebugFile, NamedCode};
use crate::link::{Allocated, Link};
use crate::object::{self, ObjectBuffer};

/// The names of a link of `sources`. It keeps those that have DWARF, and no others.
pub(super) fn of_link(link: &Link<Allocated>, sources: &[ObjectBuffer], is_stubs: bool) -> NamedCode {
    let placed = link.files_with_dwarf();
    let mut files = Vec::with_capacity(placed.len());
    if !placed.is_empty() {
        let all: Vec<_> = sources.iter().flat_map(files_of).collect();
        files.extend(placed.into_iter().filter_map(|(file, sections)| {
            let (source, part) = all.get(file)?;
            let start = part.as_ptr().addr() - source.bytes().as_ptr().addr();
            Some(DebugFile { owner: Arc::new((*source).clone()), range: start..start + part.len(), sections })
        }));
    }
    NamedCode { files, is_stubs, ..link.names() }
}

/// The files that an object is read as, in order.
fn files_of(source: &ObjectBuffer) -> impl Iterator<Item = (&ObjectBuffer, &[u8])> {
    let parts: Vec<&[u8]> = match object::parts(source) {
        Some(parts) => parts.unwrap_or_default(),
        None => vec![source.bytes()],
    };
    parts.into_iter().map(move |part| (source, part))
}
