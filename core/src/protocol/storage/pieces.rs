//! A list, first in, first out or last out, that grows and gives memory away in pieces: no step of it moves a million entries,
//! nor frees more than a few.

#![expect(clippy::disallowed_types, reason = "an item of the linked list is a piece of many entries")]

use std::collections::{LinkedList, VecDeque};

use crate::protocol::storage::memory::Takes;

#[derive(Debug)]
pub(crate) struct Pieces<T> {
    /// None is empty but the only one.
    pieces: LinkedList<VecDeque<T>>,
}

/// How many entries a piece has at most.
const PIECE: usize = 256;

/// For how many the first one has room at first: most queues are short.
const FEW: usize = 8;

impl<T: Send + 'static> Pieces<T> {
    pub(crate) const fn new() -> Self {
        Self { pieces: LinkedList::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    pub(crate) fn push_back(&mut self, entry: T) {
        match self.pieces.back_mut() {
            Some(last) if last.len() < PIECE => {
                if last.len() == last.capacity() {
                    last.reserve_exact(PIECE - last.len());
                }
                last.push_back(entry);
            }
            last => {
                let mut piece = VecDeque::with_capacity(if last.is_none() { FEW } else { PIECE });
                piece.push_back(entry);
                self.pieces.push_back(piece);
            }
        }
    }

    pub(crate) fn pop_front(&mut self, memory: &mut impl Takes) -> Option<T> {
        let first = self.pieces.front_mut()?;
        let entry = first.pop_front();
        if first.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_front().into_iter().for_each(|piece| memory.take_memory(Box::new(piece)));
        }
        entry
    }

    pub(crate) fn pop_back(&mut self, memory: &mut impl Takes) -> Option<T> {
        let last = self.pieces.back_mut()?;
        let entry = last.pop_back();
        if last.is_empty() && self.pieces.len() > 1 {
            self.pieces.pop_back().into_iter().for_each(|piece| memory.take_memory(Box::new(piece)));
        }
        entry
    }

    /// All that are left.
    pub(crate) fn into_entries(self) -> impl DoubleEndedIterator<Item = T> {
        self.pieces.into_iter().flatten()
    }
}

impl<T: Send + 'static> Default for Pieces<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_at_either_end() {
        let (mut list, mut memory) = (Pieces::new(), Vec::new());
        let mut model = VecDeque::new();
        for round in 0..600 {
            for entry in 0..round % 23 {
                list.push_back(round * 23 + entry);
                model.push_back(round * 23 + entry);
            }
            for _ in 0..round % 7 {
                assert_eq!(list.pop_front(&mut memory), model.pop_front());
                assert_eq!(list.pop_back(&mut memory), model.pop_back());
            }
            assert_eq!((list.front(), list.is_empty()), (model.front(), model.is_empty()));
        }
        assert!(list.pieces.len() > 2);
        while let Some(entry) = model.pop_back() {
            assert_eq!(list.pop_back(&mut memory), Some(entry));
        }
        assert_eq!((list.pop_back(&mut memory), list.pieces.len()), (None, 1));
    }

    #[test]
    fn entries_leave_in_the_order_in_which_they_came() {
        let (mut queue, mut memory) = (Pieces::new(), Vec::new());
        let (mut first, mut next) = (0, 0);
        for round in 0..200 {
            for _ in 0..round {
                queue.push_back(next);
                next += 1;
            }
            for _ in 0..(round * 2 / 3).min(next - first) {
                assert_eq!(queue.pop_front(&mut memory), Some(first));
                first += 1;
            }
        }
        let pieces = queue.pieces.len();
        assert!(pieces > 2);
        while let Some(entry) = queue.pop_front(&mut memory) {
            assert_eq!(entry, first);
            first += 1;
        }
        assert!(first == next && queue.is_empty());
        assert_eq!(queue.pieces.len(), 1, "the others are gone");
        assert!(memory.len() >= pieces - 1, "and were given to somebody to free");
    }
}
