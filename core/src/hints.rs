//! Hints: whether work may block, and whether it is a turn. Work tells its scheduler so.

/// Properties of a unit or a task, in a byte: each waiting unit carries one.
///
/// | bit | meaning |
/// |---|---|
/// | 0 | it is a leaf: it never blocks |
/// | 1 | it is a turn of a serial queue: another task counts while it is queued |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints(u8);

const LEAF: u8 = 1;
const TURN: u8 = 2;

impl Hints {
    pub(crate) fn leaf(self, is_leaf: bool) -> Self {
        Self((self.0 & !LEAF) | u8::from(is_leaf))
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
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_no_leaf() {
        let leaf = Hints::default().leaf(true);
        assert_eq!((leaf.is_leaf(), leaf.is_turn()), (true, false));
        assert_eq!((leaf.turn().is_leaf(), leaf.turn().is_turn()), (false, true));
        assert_eq!(leaf.leaf(false), Hints::default());
    }
}
