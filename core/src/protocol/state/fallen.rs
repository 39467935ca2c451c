//! Fallen: what rows that were removed while a failure spreads would say of it to their dependants.
//!
//! There may be a million. They are kept by where the rows stood, so many places together, so that neither a row that is added nor one
//! that is let go moves the others.

use std::collections::hash_map;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::protocol::state::failure::Fallen;
use crate::protocol::storage::ids::{Id, RowId};
use crate::protocol::storage::memory::Takes;

/// By row. Each holds its record.
#[derive(Debug, Default)]
pub(crate) struct FallenRows {
    pieces: FxHashMap<u32, Piece>,
    len: usize,
}

/// Those of neighbouring places: few, for a place has only so many rows while one failure spreads.
type Piece = FxHashMap<RowId, Fallen>;

/// How many places are neighbours.
const PLACES: u32 = 512;

impl FallenRows {
    pub(in crate::protocol) fn insert(&mut self, row: RowId, fallen: Fallen) -> Option<Fallen> {
        let before = self.pieces.entry(row.index() / PLACES).or_default().insert(row, fallen);
        self.len += usize::from(before.is_none());
        before
    }

    pub(in crate::protocol) fn get(&self, row: RowId) -> Option<Fallen> {
        self.pieces.get(&(row.index() / PLACES))?.get(&row).copied()
    }

    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(all(test, not(uruk_loom)))]
    pub(in crate::protocol) fn len(&self) -> usize {
        self.len
    }

    /// How many the largest of its maps has room for.
    #[cfg(all(test, not(uruk_loom)))]
    pub(in crate::protocol) fn largest_map(&self) -> usize {
        self.pieces.values().map(|piece| piece.capacity()).fold(self.pieces.capacity(), usize::max)
    }

    /// To be let go one by one.
    pub(in crate::protocol) fn into_going(self) -> Going {
        Going { pieces: self.pieces.into_iter(), piece: no_piece(), left: self.len }
    }
}

/// What nobody can ask for any more.
#[derive(Debug)]
pub(in crate::protocol) struct Going {
    pieces: hash_map::IntoIter<u32, Piece>,
    piece: hash_map::IntoIter<RowId, Fallen>,
    left: usize,
}

impl Default for Going {
    fn default() -> Self {
        FallenRows::default().into_going()
    }
}

impl Going {
    pub(in crate::protocol) fn len(&self) -> usize {
        self.left
    }

    /// Takes one out.
    pub(in crate::protocol) fn take_one(&mut self, memory: &mut impl Takes) -> Option<Fallen> {
        let (_, fallen) = loop {
            if let Some(next) = self.piece.next() {
                break next;
            }
            let (_, piece) = self.pieces.next()?;
            memory.take_memory(Box::new(std::mem::replace(&mut self.piece, piece.into_iter())));
        };
        self.left -= 1;
        if self.left == 0 {
            memory.take_memory(Box::new(std::mem::take(self)));
        }
        Some(fallen)
    }
}

fn no_piece() -> hash_map::IntoIter<RowId, Fallen> {
    Piece::with_hasher(FxBuildHasher).into_iter()
}
