//! What work says of itself to whoever schedules it: how much memory it holds, whether it may block, whether it is a turn.

/// What a unit or a task says of itself, in a word's half: each waiting unit carries one.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | it is a leaf: it never blocks |
/// | 1 | it is a turn of a serial queue: another task counts while it is queued |
/// | 2.. | the memory that it holds, in kibibytes, rounded up |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints(u32);

const LEAF: u32 = 1;
const TURN: u32 = 2;
const KIBIBYTE: u32 = 4;
const KIBIBYTES_MAX: usize = (u32::MAX / KIBIBYTE) as usize;

impl Hints {
    pub(crate) fn leaf(self, is_leaf: bool) -> Self {
        Self((self.0 & !LEAF) | u32::from(is_leaf))
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    /// Makes them those of the turn for which the work waits.
    pub(crate) fn turn(self) -> Self {
        // The thread that runs it may have to run others.
        Self(self.leaf(false).0 | TURN)
    }

    pub(crate) fn is_turn(self) -> bool {
        self.0 & TURN != 0
    }

    /// Notes how much memory is held. More than a tebibyte counts as one.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        let kibibytes = bytes.div_ceil(1024).min(KIBIBYTES_MAX) as u32;
        Self((self.0 & (LEAF | TURN)) | (kibibytes * KIBIBYTE))
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
        let turn = hints.leaf(true).turn();
        assert_eq!(
            (turn.memory_bytes(), turn.is_leaf(), turn.is_turn()),
            (hints.memory_bytes(), false, true)
        );
    }
}
