//! The sources that a package is loaded with: which of them it was made of.

use std::collections::HashSet;

use uruk_pipeline::image::{ImageReader, Rejection, SourceMatch, UnitKey, Validation};
use uruk_pipeline::object::{ArchiveIndex, FileKind, ObjectBuffer};

use crate::error::JitError;
use crate::files::Files;
use crate::image_options::ImageOptions;

/// Where a source of a package is.
#[derive(Clone)]
pub(crate) enum SourcePlace {
    Missing,
    Here(ObjectBuffer),
    /// A member of an archive that is another one than the package was made of. It comes when something needs it.
    InArchive,
}

/// The sources that a package is loaded with.
pub(crate) struct MatchedSources {
    pub(crate) validation: Validation,
    /// By the numbers of the package's sources.
    pub(crate) places: Vec<SourcePlace>,
    /// Those of no unit.
    pub(crate) new: Vec<ObjectBuffer>,
    /// The archives, without the members that the package was made of.
    pub(crate) archives: Vec<ArchiveIndex>,
}

/// A file, or the member of an archive by their numbers.
enum Given<'s> {
    File(&'s ObjectBuffer),
    Member(usize, usize),
}

pub(crate) fn match_sources(
    reader: &ImageReader,
    files: &Files,
    options: &ImageOptions,
) -> Result<MatchedSources, JitError> {
    let (mut given, mut archives) = (Vec::new(), Vec::new());
    for source in &options.sources {
        if matches!(FileKind::of(source.bytes()), FileKind::Archive | FileKind::ThinArchive) {
            let index = files.archive_index(source)?;
            given.extend((0..index.members().len()).map(|member| Given::Member(archives.len(), member)));
            archives.push(index);
        } else {
            given.push(Given::File(source));
        }
    }
    let contents = |given: &Given<'_>| match *given {
        Given::File(source) => source.clone(),
        Given::Member(archive, member) => archives[archive].members()[member].contents().clone(),
    };
    let contents: Vec<ObjectBuffer> = given.iter().map(contents).collect();
    let keyed: Vec<_> =
        contents.iter().map(|source| (&**source.name(), key_of(files, reader, source))).collect();
    let mut validation = Validation::new(reader);
    let (mut places, mut new) = (vec![SourcePlace::Missing; reader.sources().len()], Vec::new());
    let mut left_out = vec![HashSet::new(); archives.len()];
    for ((given, source), found) in given.iter().zip(&contents).zip(validation.match_sources(reader, &keyed))
    {
        match (found, given) {
            (SourceMatch::Same(number), Given::Member(archive, member)) => {
                places[number] = SourcePlace::Here(source.clone());
                left_out[*archive].insert(*member);
            }
            (SourceMatch::Changed(number), Given::Member(..)) => places[number] = SourcePlace::InArchive,
            (SourceMatch::New, Given::Member(..)) => {}
            (SourceMatch::Same(number) | SourceMatch::Changed(number), Given::File(_)) => {
                places[number] = SourcePlace::Here(source.clone());
            }
            (SourceMatch::New, Given::File(_)) => new.push(source.clone()),
        }
    }
    archives.iter_mut().zip(&left_out).for_each(|(index, left_out)| index.leave_out(left_out));
    // Later: the sources of a unit that has changed are added, if it is left out too.
    for (unit, packed) in (0..).zip(reader.packed()) {
        if options.left_out.iter().any(|name| **name == *packed.name) {
            validation.reject(unit, Rejection::LeftOut);
        }
    }
    Ok(MatchedSources { validation, places, new, archives })
}

#[cfg(feature = "cache")]
fn key_of(files: &Files, reader: &ImageReader, source: &ObjectBuffer) -> UnitKey {
    files.key_of_source_in(reader, source)
}

/// Without a hash for keys no source is known to be the same.
#[cfg(not(feature = "cache"))]
fn key_of(_: &Files, _: &ImageReader, _: &ObjectBuffer) -> UnitKey {
    [0xff; 32]
}
