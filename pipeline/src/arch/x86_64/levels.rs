//! Levels of processors, as the psABI of x86-64 has them, and targets in general.
//!
//! An image is compiled for a level, so that it runs on every processor that has it: by default on nearly all of the last fifteen years.

use super::features::Features;

/// A set of instructions that many processors have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProcessorLevel {
    /// All x86-64 processors.
    V1,
    /// Those with SSE4.2, since about 2009.
    #[default]
    V2,
    /// Those with AVX2, since about 2013 and 2015.
    V3,
    /// Those with AVX-512.
    V4,
}

const ADDED_BY_V2: &[&str] = &["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"];
const ADDED_BY_V3: &[&str] = &["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"];
const ADDED_BY_V4: &[&str] = &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];

impl ProcessorLevel {
    /// Every level, the lowest first.
    pub const ALL: [Self; 4] = [Self::V1, Self::V2, Self::V3, Self::V4];

    /// Its name, which is LLVM's too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "x86-64",
            Self::V2 => "x86-64-v2",
            Self::V3 => "x86-64-v3",
            Self::V4 => "x86-64-v4",
        }
    }

    /// The level of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The highest level that this processor has.
    pub fn of_this_processor() -> Self {
        let have = Features::of_this_processor();
        let has = |level: &Self| have.contains(level.features());
        Self::ALL.into_iter().rev().find(has).unwrap_or(Self::V1)
    }

    /// The instruction sets of the level, with those of the levels below.
    pub fn features(self) -> Features {
        let levels = [(Self::V2, ADDED_BY_V2), (Self::V3, ADDED_BY_V3), (Self::V4, ADDED_BY_V4)].into_iter();
        let added = levels.filter(|(level, _)| *level <= self).flat_map(|(_, added)| added);
        Features::of_names(added.copied())
    }
}

/// Processors that code is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorTarget {
    /// Its name in reports and messages.
    pub name: Box<str>,
    /// The instruction sets that its code may use.
    pub features: Features,
    /// Whether each function has a version for them, also one that is not expected to be faster.
    pub is_whole: bool,
}

impl From<ProcessorLevel> for ProcessorTarget {
    fn from(level: ProcessorLevel) -> Self {
        Self { name: level.name().into(), features: level.features(), is_whole: false }
    }
}

impl Default for ProcessorTarget {
    /// That of the default level.
    fn default() -> Self {
        ProcessorLevel::default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_all_that_those_below_it_have() {
        for pair in ProcessorLevel::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[1].features().contains(pair[0].features()));
        }
        assert!(ProcessorLevel::V1.features().is_empty());
        let all = [ADDED_BY_V2, ADDED_BY_V3, ADDED_BY_V4].concat();
        assert_eq!(ProcessorLevel::V4.features().len() as usize, all.len(), "each name has a number");
        assert_eq!(ProcessorLevel::by_name("x86-64-v2"), Some(ProcessorLevel::V2));
    }
}
