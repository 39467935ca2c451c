//! The targets of an image: which of them this processor can run, and the versions of functions for each.

use super::error::ImageError;
use super::format::{ImageTarget, Region};
use super::reader::ImageReader;
use crate::arch::{CodeNeeds, Features, ProcessorLevel};

/// The code of a function for a target, and the word that calls of the function go by: addresses from the start of the memory on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageVersion {
    pub(crate) slot: u64,
    pub(crate) target: u32,
    pub(crate) code: u64,
}

impl ImageReader {
    /// The processors that the code is for. The first of them are the base: where a function has no version for others, they have its code.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = ImageTarget<'_>> {
        self.rows(Region::Targets).map(|row| ImageTarget {
            name: self.text(row.half(0)).unwrap_or_default(),
            declared: Features::from_bits(row.bits(8)),
            needs: CodeNeeds { features: Features::from_bits(row.bits(24)), vector_bits: row.half(4) },
        })
    }

    /// The target whose code is the best for a processor that has these instruction sets: of those whose code it can run, the one that uses most
    /// of them, then the one with the widest vectors. `None` if it cannot run the base's.
    pub fn best_target(&self, have: Features) -> Option<(u32, ImageTarget<'_>)> {
        let fits = |needs: CodeNeeds| have.contains(needs.features);
        fits(self.targets().next()?.needs).then_some(())?;
        let fitting = (0..).zip(self.targets()).filter(|(_, target)| fits(target.needs));
        fitting.max_by_key(|(number, target)| {
            (target.needs.features.len(), target.needs.vector_bits, std::cmp::Reverse(*number))
        })
    }

    /// The target whose code runs here.
    ///
    /// # Errors
    /// [`ImageError::Processor`] if this processor cannot run the code of the base.
    pub fn target_here(&self) -> Result<(u32, ImageTarget<'_>), ImageError> {
        let have = Features::of_this_processor();
        self.best_target(have).ok_or_else(|| match self.targets().next() {
            Some(base) => ImageError::Processor {
                path: self.path.clone(),
                target: base.name.into(),
                missing: base.needs.features.without(have).names().collect(),
                others: self.others_lack(base.needs.features.union(have)),
                build: ProcessorLevel::of_this_processor().name(),
            },
            None => self.damaged("the processor that it is for is not known"),
        })
    }

    /// The targets beside the base, each with what it needs beyond `known`.
    fn others_lack(&self, known: Features) -> Box<str> {
        let others = self.targets().skip(1).filter_map(|target| {
            let names: Vec<_> = target.needs.features.without(known).names().collect();
            (!names.is_empty()).then(|| format!("{} also {}", target.name, names.join(", ")))
        });
        let others: Vec<_> = others.collect();
        if others.is_empty() { "".into() } else { format!(" ({})", others.join("; ")).into() }
    }

    /// The versions of functions.
    pub(crate) fn versions(&self) -> impl Iterator<Item = ImageVersion> {
        self.rows(Region::Versions).map(|row| ImageVersion {
            slot: row.half(0).into(),
            target: row.half(4),
            code: row.half(8).into(),
        })
    }
}
