//! [`Validation`]: which units of a package are still right.
//!
//! ```text
//!   sources that are there ─match─▶ units with other sources are rejected ─┐
//!                                                                          ├─▶ a unit, at its first use: valid, or rejected for a reason
//!   definitions that a unit has code of ─▶ their units, or the host's word ─┘
//! ```
//!
//! **Holds.** A unit is valid only if every unit whose code it contains is valid. A rejection never changes.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use uruk_core::Readable;

use super::containing::Containing;
use super::reader::ImageReader;
use super::stages::Revocable;
use super::unit_set::UnitSet;
use super::units::{ContainedCode, KeyOfUnit, UnitKey};

/// Why a unit of a package is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// A source is another one, or it is compiled with other options.
    Source {
        /// The source.
        name: Box<str>,
        /// The key of the source that the image was made of.
        image: UnitKey,
        /// The key of the source that is there.
        here: UnitKey,
    },
    /// The unit contains code of a definition that is not what it was.
    Assumption {
        /// The definition.
        definition: Box<str>,
        /// Its key when the image was made.
        image: UnitKey,
        /// Its key now; `None` if nothing says which it is, or if its own unit was rejected.
        here: Option<UnitKey>,
    },
    /// The unit contains code of a definition that was redefined before the unit was used.
    Redefined {
        /// The definition.
        definition: Box<str>,
    },
    /// The host has asked for that.
    LeftOut,
    /// The session has a definition of the same name.
    Taken {
        /// The definition.
        definition: Box<str>,
    },
    /// The processor here lacks what the package needs.
    Processor {
        /// The error.
        error: Box<str>,
    },
    /// Its image is damaged.
    Damaged {
        /// The error.
        error: Box<str>,
    },
}

impl Rejection {
    /// The cause in a word or two, for counting.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Source { .. } => "another source",
            Self::Assumption { .. } => "code of another definition",
            Self::Redefined { .. } => "code that was redefined",
            Self::LeftOut => "left out",
            Self::Taken { .. } => "defined already",
            Self::Processor { .. } => "another processor",
            Self::Damaged { .. } => "damaged",
        }
    }
}

/// A source beside the sources of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceMatch {
    /// The source with this number in the package is the same.
    Same(usize),
    /// The source with this number has the same name and another key.
    Changed(usize),
    /// The package knows none of that name.
    New,
}

/// Answers about the units of a package.
#[derive(Debug)]
pub struct Validation {
    /// For each unit the number of its reason + 1, or 0.
    rejected: Box<[u32]>,
    reasons: Vec<Rejection>,
    /// Those that were found to be valid.
    valid: UnitSet,
    /// How many times that was forgotten of all.
    revocations: u64,
    /// Those that the latest answer depends on. The set stays for the sake of its memory.
    visited: UnitSet,
    /// Made when it is first asked for.
    containing: Option<Containing>,
}

impl Validation {
    /// No unit has been asked about yet.
    pub fn new(reader: &ImageReader) -> Self {
        let units = reader.packed().len();
        Self {
            rejected: vec![0; units].into(),
            reasons: Vec::new(),
            valid: UnitSet::none_of(units),
            revocations: 0,
            visited: UnitSet::none_of(units),
            containing: None,
        }
    }

    /// Finds each of some sources in the package: by its key, else by its path, else by its file's name. Rejects the units whose source is
    /// another one. If only the file's name fits, and fits several, the units of all of these are rejected.
    ///
    /// # Cost
    /// Linear in the sources, of both.
    pub fn match_sources(&mut self, reader: &ImageReader, sources: &[(&str, UnitKey)]) -> Vec<SourceMatch> {
        let known: Vec<_> = reader.sources().collect();
        let (mut by_key, mut by_name) = (HashMap::<_, VecDeque<_>>::new(), HashMap::<_, VecDeque<_>>::new());
        for (number, source) in known.iter().enumerate() {
            by_key.entry(source.key).or_default().push_back(number);
            by_name.entry(file_name(source.name)).or_default().push_back(number);
        }
        let mut is_taken = vec![false; known.len()];
        let same: Vec<_> = sources
            .iter()
            .map(|(name, key)| {
                let numbers = by_key.get_mut(key)?;
                let number = numbers.remove(place_of(name, numbers, &known).unwrap_or(0))?;
                is_taken[number] = true;
                Some(number)
            })
            .collect();
        // The one that fits; or those of which any may.
        let mut changed = |name: &str| {
            let numbers = by_name.get_mut(file_name(name))?;
            numbers.retain(|number| !is_taken[*number]);
            let place = place_of(name, numbers, &known);
            let others = if place.is_none() { numbers.iter().copied().skip(1).collect() } else { Vec::new() };
            Some((numbers.remove(place.unwrap_or(0))?, others))
        };
        let matched = sources.iter().zip(same).map(|(&(name, here), same)| {
            if let Some(number) = same {
                return SourceMatch::Same(number);
            }
            let Some((number, others)) = changed(name) else { return SourceMatch::New };
            for number in std::iter::once(number).chain(others) {
                let source = known[number];
                let (image, name) = (source.key, source.name.into());
                self.reject(source.unit, Rejection::Source { name, image, here });
            }
            SourceMatch::Changed(number)
        });
        matched.collect()
    }

    /// Rejects a unit for a reason of the caller's. The first reason counts.
    pub fn reject(&mut self, unit: u32, reason: Rejection) {
        self.reject_all(&[unit], &reason);
    }

    /// The same for several units.
    ///
    /// # Cost
    /// Linear in them, and in the units that were found to be valid.
    pub fn reject_all(&mut self, units: &[u32], reason: &Rejection) {
        if self.note(units, reason) {
            // Units that contain their code may have been found valid, and are not used yet.
            self.valid.clear();
            self.revocations += 1;
        }
    }

    /// Notes one reason for all of the units that have none. Says whether there are such.
    fn note(&mut self, units: &[u32], reason: &Rejection) -> bool {
        let (number, mut is_new) = (self.reasons.len() as u32 + 1, false);
        for unit in units {
            if let Some(rejected @ 0) = self.rejected.get_mut(*unit as usize) {
                *rejected = number;
                is_new = true;
            }
        }
        if is_new {
            self.reasons.push(reason.clone());
        }
        is_new
    }

    /// The units that contain code of `definition`, directly or by way of others, in the order of their numbers.
    ///
    /// # Cost
    /// Linear in the units that contain code of the definition's unit, and in the result. The first time linear in all assumptions of the
    /// package. For a definition that is in no unit, linear in the assumptions of such.
    pub fn closure_of(&mut self, reader: &ImageReader, definition: &str) -> Vec<u32> {
        self.containing.get_or_insert_with(|| Containing::of(reader)).closure(reader, definition)
    }

    /// The definitions whose code a unit contains itself.
    pub fn contained_in(reader: &ImageReader, unit: u32) -> impl Iterator<Item = ContainedCode<'_>> {
        reader.assumptions_of(unit).filter_map(|row| reader.assumption(row))
    }

    /// The definitions that are in no unit and that the answer for a unit depends on. Those of units that were found to be
    /// valid are not among them: they are asked for again once [answers were taken back](Revocable::revocations).
    ///
    /// # Cost
    /// As [`check`](Self::check).
    pub fn foreign_of<'r>(&mut self, reader: &'r ImageReader, unit: u32) -> BTreeSet<&'r str> {
        self.visited.clear();
        self.visited.insert(unit);
        let (mut names, mut open) = (BTreeSet::new(), vec![unit]);
        while let Some(unit) = open.pop() {
            for row in self.enter(reader, unit).unwrap_or_default() {
                match reader.home_of(row) {
                    Some(home) if self.visited.insert(home) => open.push(home),
                    Some(_) => {}
                    None => names.extend(reader.assumption(row).map(|assumed| assumed.name)),
                }
            }
        }
        names
    }

    /// Whether a unit may be used. `here` gives the keys of definitions that are in no unit.
    ///
    /// # Errors
    /// The reason to reject it.
    ///
    /// # Cost
    /// A number and a bit for each assumption of the unit, and of the units whose code it contains, as far as these were not found to be valid. A bit later.
    pub fn check(
        &mut self,
        reader: &ImageReader,
        unit: u32,
        here: &dyn Fn(&str) -> Option<UnitKey>,
    ) -> Result<(), Rejection> {
        if !self.valid.contains(unit) {
            self.visit(reader, unit, here)?;
            for unit in self.visited.members() {
                self.valid.insert(*unit);
            }
        }
        Ok(())
    }

    /// The units that were rejected by now, with the reasons.
    pub fn rejected(&self) -> impl Iterator<Item = (u32, &Rejection)> {
        let numbered = (0..).zip(&self.rejected);
        numbered.filter_map(|(unit, number)| Some((unit, self.reason_of(*number)?)))
    }

    /// The reason for which a unit was rejected, if it was.
    pub fn reason(&self, unit: u32) -> Option<&Rejection> {
        self.reason_of(*self.rejected.get(unit as usize)?)
    }

    fn reason_of(&self, number: u32) -> Option<&Rejection> {
        self.reasons.get(number.checked_sub(1)? as usize)
    }

    /// Visits a unit and those whose code it contains, if none of them is rejected.
    ///
    /// A unit that contains its own code by way of others is as good as these, so one that was visited is passed: the caller notes that they are
    /// valid when all of them are through.
    fn visit(
        &mut self,
        reader: &ImageReader,
        first: u32,
        here: &dyn Fn(&str) -> Option<UnitKey>,
    ) -> Result<(), Rejection> {
        self.visited.clear();
        self.visited.insert(first);
        // Each unit with the rest of its assumptions. A chain of units may be longer than a thread's stack.
        let mut path = vec![(first, self.enter(reader, first)?)];
        while let Some((_, rest)) = path.last_mut() {
            let Some(row) = rest.next() else {
                path.pop();
                continue;
            };
            let home = reader.home_of(row);
            if home.is_some_and(|home| self.valid.contains(home) || self.visited.contains(home)) {
                continue;
            }
            let Some(ContainedCode { name, key: image, .. }) = reader.assumption(row) else { continue };
            // A rejected unit has other code, even if its source has the key of another.
            let (is_rejected, now) = match home.map(|home| (home, self.enter(reader, home))) {
                Some((home, Ok(rest))) => {
                    self.visited.insert(home);
                    path.push((home, rest));
                    continue;
                }
                Some((_, Err(Rejection::Source { here, .. }))) => (true, Some(here)),
                Some((_, Err(_))) => (true, None),
                None => (false, here(name)),
            };
            if is_rejected || now != Some(image) {
                let reason = Rejection::Assumption { definition: name.into(), image, here: now };
                // All that led here contain code of the definition. None that is valid contains code of theirs.
                let units: Vec<u32> = path.iter().map(|(unit, _)| *unit).collect();
                self.note(&units, &reason);
                return Err(reason);
            }
        }
        Ok(())
    }

    /// The assumptions of a unit, as far as they are not known to hold.
    fn enter(&self, reader: &ImageReader, unit: u32) -> Result<Range<usize>, Rejection> {
        let damaged = || Rejection::Damaged { error: "the unit is not there".into() };
        let number = self.rejected.get(unit as usize).ok_or_else(damaged)?;
        match self.reason_of(*number) {
            Some(reason) => Err(reason.clone()),
            None if self.valid.contains(unit) => Ok(0..0),
            None => Ok(reader.assumptions_of(unit)),
        }
    }
}

impl Revocable for Validation {
    fn revocations(&self) -> u64 {
        self.revocations
    }
}

/// The end of a sentence that begins with the name of the unit.
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source { image, here, .. } => write!(
                f,
                "it was compiled from another source or with other options (image {}, here {})",
                Short(image),
                Short(here)
            ),
            Self::Assumption { definition, image, here: Some(here) } => write!(
                f,
                "it contains code of `{}` as of {}, which is {} now",
                Readable(definition),
                Short(image),
                Short(here)
            ),
            Self::Assumption { definition, image, here: None } => write!(
                f,
                "it contains code of `{}` as of {}, which is not what is used now",
                Readable(definition),
                Short(image)
            ),
            Self::Redefined { definition } => {
                write!(f, "it contains code of `{}`, which was redefined", Readable(definition))
            }
            Self::LeftOut => f.write_str("it was to be left out"),
            Self::Taken { definition } => {
                write!(f, "`{}` is defined already", Readable(definition))
            }
            Self::Processor { error } | Self::Damaged { error } => f.write_str(error),
        }
    }
}

/// The beginning of a key, which tells it from others.
struct Short<'k>(&'k UnitKey);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("\u{2026}")
    }
}

/// The source of that path among some.
fn place_of(path: &str, numbers: &VecDeque<usize>, known: &[KeyOfUnit<'_>]) -> Option<usize> {
    if numbers.len() == 1 {
        return Some(0);
    }
    numbers.iter().position(|number| known[*number].name == path)
}

/// A source is known by this part of its path: the tree that it lies in may have moved.
fn file_name(name: &str) -> &str {
    Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::super::format::SymbolTraits;
    use super::super::link::BuiltSymbol;
    use super::super::package::{BuiltUnit, package};
    use super::*;
    use crate::arch::ProcessorLevel;

    /// A package of units `f0`, `f1` and so on. Each of the first four contains code of the one before, and the first one of the host's.
    fn reader(units: u32) -> ImageReader {
        let built = (0..units).map(|number| {
            let mut unit = BuiltUnit::default();
            (unit.name, unit.image) = (format!("f{number}").into(), vec![0; 16]);
            let traits = SymbolTraits::GLOBAL;
            unit.symbols =
                vec![BuiltSymbol { name: unit.name.clone(), unit: 0, traits, size_bytes: 1, address: 0 }];
            match number {
                0 => unit.assume("host", [9; 32]),
                1..4 => unit.assume(format!("f{}", number - 1), [9; 32]),
                _ => {}
            }
            unit
        });
        let bytes = package(built.collect(), &ProcessorLevel::V1.into()).to_bytes();
        ImageReader::of_bytes(Path::new("test.uim"), &bytes).expect("it is whole")
    }

    #[test]
    fn a_path_is_rejected_for_one_reason_and_what_is_valid_stays_so() {
        let reader = reader(5);
        let mut validation = Validation::new(&reader);
        assert!(validation.check(&reader, 4, &|_| None).is_ok());
        assert!(validation.check(&reader, 3, &|_| None).is_err());
        assert_eq!(validation.rejected().count(), 4);
        assert_eq!(validation.reasons.len(), 1);
        assert!(validation.valid.contains(4));
    }
}
