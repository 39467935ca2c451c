//! The functions that calls may refer to.

use std::collections::BTreeMap;

/// Something that can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function of the program.
    Defined {
        /// How many parameters it has.
        parameters: usize,
    },
    /// A function that the program has declared to be one of the process.
    Extern {
        /// How many parameters it has.
        parameters: usize,
        /// No function there has it.
        is_missing: bool,
    },
}

/// The functions that can be called at one moment, by name.
pub type Functions = BTreeMap<String, Callee>;

impl Callee {
    /// How many parameters it has.
    pub fn parameters(self) -> usize {
        match self {
            Self::Defined { parameters } | Self::Extern { parameters, .. } => parameters,
        }
    }
}

/// Which of `candidates` was probably meant by `name`: a slip or two away, of which there may be more in a longer name.
///
/// # Examples
/// ```
/// assert_eq!(uruk_kaleidoscope::nearest("fibb", ["fib", "sin"].into_iter()), Some("fib"));
/// assert_eq!(uruk_kaleidoscope::nearest("tan", ["fib", "sin"].into_iter()), None);
/// ```
pub fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let slips = candidates.map(|candidate| (strsim::osa_distance(name, candidate), candidate));
    let (slips, best) = slips.min_by_key(|(slips, _)| *slips)?;
    (slips <= 1 + name.len() / 4 && slips < name.len()).then_some(best)
}
