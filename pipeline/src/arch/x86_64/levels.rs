//! Levels of processors, as the psABI of x86-64 has them.
//!
//! An image is compiled for a level, so that it runs on every processor that has it: by default on nearly all of the last fifteen years.

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

/// Whether this processor has each instruction set that the level adds to those below it.
macro_rules! has {
    ($($name:tt)*) => {
        &[$(($name, || has_feature!($name))),*]
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! has_feature {
    ($name:tt) => {
        std::arch::is_x86_feature_detected!($name)
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! has_feature {
    ($name:tt) => {
        false
    };
}

/// An instruction set, and whether this processor has it.
type Feature = (&'static str, fn() -> bool);

const ADDED_BY_V2: &[Feature] = has!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b");
const ADDED_BY_V3: &[Feature] = has!("avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe" "xsave");
const ADDED_BY_V4: &[Feature] = has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl");

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
        let has = |level: &Self| level.missing().is_empty();
        Self::ALL.into_iter().rev().find(has).unwrap_or(Self::V1)
    }

    /// The instructions of the level that this processor lacks.
    pub fn missing(self) -> Vec<&'static str> {
        let levels = [(Self::V2, ADDED_BY_V2), (Self::V3, ADDED_BY_V3), (Self::V4, ADDED_BY_V4)].into_iter();
        let needed = levels.filter(|(level, _)| *level <= self).flat_map(|(_, added)| added);
        needed.filter(|(_, has)| !has()).map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_all_that_those_below_it_have() {
        for pair in ProcessorLevel::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].missing().len() <= pair[1].missing().len());
        }
        assert!(ProcessorLevel::V1.missing().is_empty());
        assert!(ProcessorLevel::of_this_processor().missing().is_empty());
        assert_eq!(ProcessorLevel::by_name("x86-64-v2"), Some(ProcessorLevel::V2));
    }
}
