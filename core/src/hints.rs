//! What work says of itself to whoever schedules it: how much memory it holds, whether it may block.

/// What a unit or a task says of itself, in a word's half: each waiting unit carries one.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | it is a leaf: it never blocks |
/// | 1.. | the memory that it holds, in kibibytes, rounded up |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints(u32);

const LEAF: u32 = 1;
const KIBIBYTE: u32 = 2;
const KIBIBYTES_MAX: usize = (u32::MAX / KIBIBYTE) as usize;

impl Hints {
    pub(crate) fn leaf(self, is_leaf: bool) -> Self {
        Self((self.0 & !LEAF) | u32::from(is_leaf))
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    /// Notes how much memory is held. More than two tebibytes count as two.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        let kibibytes = bytes.div_ceil(1024).min(KIBIBYTES_MAX) as u32;
        Self((self.0 & LEAF) | (kibibytes * KIBIBYTE))
    }

    pub(crate) fn memory_bytes(self) -> usize {
        (self.0 / KIBIBYTE) as usize * 1024
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_rounded_up_and_independent_of_the_leaf() {
        let hints = Hints::default().holding(1).leaf(true);
        assert_eq!((hints.memory_bytes(), hints.is_leaf()), (1024, true));
        let hints = hints.holding(usize::MAX).leaf(false);
        assert_eq!((hints.memory_bytes(), hints.is_leaf()), (KIBIBYTES_MAX * 1024, false));
        assert_eq!(hints.holding(0), Hints::default());
    }
}
