//! Packages: images of units in one file, each of which can be rejected without the others.
//!
//! ```text
//!   objects of a unit ─link─▶ image of the unit ─┐
//!   objects of a unit ─link─▶ image of the unit ─┴─▶ file: one index of names, a key for each source, the images
//! ```
//!
//! Units refer to each other by imports, as to any other definition of a session. So each one is mapped, bound, removed and replaced alone.
//!
//! A unit is right while two things hold: its sources are those that it was compiled from, and so are the sources of the definitions that it
//! contains code of. Of a definition that many files have, as an inline function, one unit has the one that counts; the units that refer to it had their
//! own, so they assume that one in the same way.

use std::collections::{BTreeMap, HashMap};

use super::format::{ImageFlags, LEVEL_SHIFT, PAGE_BYTES, SymbolTraits};
use super::link::{BuiltImage, BuiltSymbol, BuiltTarget};
use super::units::UnitKey;
use crate::arch::{CodeNeeds, ProcessorTarget};

/// A unit of a package, linked.
#[derive(Debug, Default)]
pub struct BuiltUnit {
    pub(super) name: Box<str>,
    pub(super) traits: ImageFlags,
    pub(super) image: Vec<u8>,
    pub(super) symbols: Vec<BuiltSymbol>,
    pub(super) sources: Vec<(Box<str>, UnitKey)>,
    pub(super) assumptions: Vec<(Box<str>, UnitKey)>,
    /// Definitions that were its own as well, as far as the linker knows, or that it has copies of.
    left_out: Vec<Box<str>>,
    imports: Vec<(Box<str>, SymbolTraits)>,
    needs: CodeNeeds,
}

impl BuiltUnit {
    /// The unit of a linked image, which was compiled from `sources`. The definitions with the names in `left_out` are those of other units, and it may contain their code.
    pub fn new(
        name: impl Into<Box<str>>,
        image: &BuiltImage,
        sources: Vec<(Box<str>, UnitKey)>,
        left_out: Vec<Box<str>>,
    ) -> Self {
        let global = image.symbols.iter().filter(|symbol| symbol.is_global());
        let symbols = global.map(|symbol| BuiltSymbol { size_bytes: symbol.size_bytes, ..symbol.clone() });
        Self {
            name: name.into(),
            traits: ImageFlags::from_bits_truncate(image.layout.flags) & ImageFlags::RUNS,
            image: image.to_bytes(),
            symbols: symbols.collect(),
            sources,
            assumptions: Vec::new(),
            left_out,
            imports: image.imports.clone(),
            needs: image.targets.first().map_or_else(CodeNeeds::default, |target| target.needs),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes that it contains code of a definition, whose source has this key.
    pub fn assume(&mut self, definition: impl Into<Box<str>>, key: UnitKey) {
        self.assumptions.push((definition.into(), key));
    }

    /// The key of its first source; zeros if it has none.
    fn key(&self) -> UnitKey {
        self.sources.first().map_or_else(UnitKey::default, |(_, key)| *key)
    }
}

impl BuiltImage {
    /// Has sessions put stubs before its functions, where these can be replaced by better ones.
    pub fn allow_stubs(&mut self) {
        self.layout.flags |= ImageFlags::STUBS.bits();
    }

    /// Notes the level that its code was compiled at, in the host's numbers, if all of it has one.
    #[must_use]
    pub fn with_level(mut self, level: Option<u8>) -> Self {
        self.layout.flags |= level.map_or(0, |level| (u64::from(level) + 1) << LEVEL_SHIFT);
        self
    }
}

/// The file of a package of `units`, for the processors of `target`.
pub fn package(mut units: Vec<BuiltUnit>, target: &ProcessorTarget) -> BuiltImage {
    let mut homes = HashMap::new();
    for (number, unit) in units.iter().enumerate() {
        let home = |symbol: &BuiltSymbol| (number, unit.key(), symbol.traits.contains(SymbolTraits::WEAK));
        homes.extend(unit.symbols.iter().map(|symbol| (symbol.name.clone(), home(symbol))));
    }
    let mut foreign = BTreeMap::new();
    for (number, unit) in units.iter_mut().enumerate() {
        for (name, traits) in unit.imports.iter().filter(|(name, _)| !homes.contains_key(name)) {
            // Of several references one may be by a distance.
            let known = foreign.entry(name.clone()).or_insert(*traits);
            *known |= *traits & SymbolTraits::CLOSE;
        }
        let lost = unit.left_out.drain(..).map(|name| (name, true));
        let referred = unit.imports.drain(..).map(|(name, _)| (name, false));
        for (name, is_lost) in lost.chain(referred) {
            // A name that one object of the unit has lost may be another one's of it.
            let home = homes.get(&name).filter(|(home, _, is_weak)| *home != number && (is_lost || *is_weak));
            if let Some((_, key, _)) = home {
                unit.assumptions.push((name, *key));
            }
        }
        unit.assumptions.sort_unstable();
        unit.assumptions.dedup();
    }
    let imports = foreign.into_iter().collect();
    let mut image = BuiltImage { imports, ..BuiltImage::default() };
    let needs = units.iter().fold(CodeNeeds::default(), |needs, unit| needs.with(unit.needs));
    image.targets.push(BuiltTarget { target: target.clone(), needs });
    image.layout.flags = ImageFlags::PACKAGE.bits();
    (image.layout.memory_bytes, image.layout.memory_align) = (PAGE_BYTES, PAGE_BYTES);
    for (number, unit) in units.iter_mut().enumerate() {
        image.units.push(unit.name.clone());
        image.symbols.extend(unit.symbols.drain(..).map(|symbol| BuiltSymbol {
            unit: number as u32,
            // Its place is in the image of the unit.
            traits: symbol.traits | SymbolTraits::ABSOLUTE,
            address: 0,
            ..symbol
        }));
    }
    image.packed = units;
    image
}
