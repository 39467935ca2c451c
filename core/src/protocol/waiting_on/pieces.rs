//! A queue that grows and gives memory back in pieces: no step of it moves a million entries.

use std::collections::VecDeque;

/// First in, first out.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    /// None is empty but the only one.
    pieces: VecDeque<VecDeque<T>>,
}

/// How many entries a piece has at most.
const PIECE: usize = 256;

/// How many pieces a queue that has become short has room for.
const FEW: usize = 4;

impl<T> Pieces<T> {
    pub(super) const fn new() -> Self {
        Self { pieces: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    pub(super) fn push_back(&mut self, entry: T) {
        match self.pieces.back_mut() {
            Some(last) if last.len() < PIECE => last.push_back(entry),
            _ => self.pieces.push_back(VecDeque::from([entry])),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let first = self.pieces.front_mut()?;
        let entry = first.pop_front();
        if first.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_front();
            if self.pieces.len() == 1 {
                self.pieces.shrink_to(FEW);
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_the_order_in_which_they_came() {
        let mut queue = Pieces::new();
        let (mut first, mut next) = (0, 0);
        for round in 0..200 {
            for _ in 0..round {
                queue.push_back(next);
                next += 1;
            }
            for _ in 0..(round * 2 / 3).min(next - first) {
                assert_eq!(queue.pop_front(), Some(first));
                first += 1;
            }
        }
        assert!(queue.pieces.len() > 2);
        while let Some(entry) = queue.pop_front() {
            assert_eq!(entry, first);
            first += 1;
        }
        assert!(first == next && queue.is_empty());
        assert_eq!(queue.pieces.len(), 1, "the others are gone");
    }
}
