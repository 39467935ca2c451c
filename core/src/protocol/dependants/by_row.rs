//! The facts on each row: a table by the place of the row, in chunks that come and go.
//!
//! A table that grows moves nothing. A chunk in which no row is known any more leaves.

use crate::protocol::storage::{Id, NONE, RowId, Takes};

const CHUNK: usize = 512;

/// The facts on existing rows.
#[derive(Debug, Default)]
pub(super) struct ByRow {
    chunks: Vec<Option<Box<KnownRows>>>,
    /// How many rows are known.
    known: usize,
}

#[derive(Debug)]
struct KnownRows {
    rows: [KnownRow; CHUNK],
    known: usize,
}

/// The facts on a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownRow {
    /// Tells the row from others that had its place before.
    generation: u32,
    /// The emission it belongs to, or `NONE`.
    pub(super) emission: u32,
    /// The first edge to it, or `NONE`.
    pub(super) first: u32,
}

/// A place of which nothing is known. No slab has an index as large.
const UNKNOWN: KnownRow = KnownRow { generation: 0, emission: NONE - 1, first: NONE };

impl KnownRow {
    fn is_known(&self) -> bool {
        self.emission != UNKNOWN.emission
    }
}

impl ByRow {
    pub(super) fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Whether anything was noted of the row.
    pub(super) fn knows(&self, row: RowId) -> bool {
        self.get(row).is_some()
    }

    /// The first edge to the row, or `NONE`.
    pub(super) fn first_of(&self, row: RowId) -> u32 {
        self.get(row).map_or(NONE, |known| known.first)
    }

    pub(super) fn get(&self, row: RowId) -> Option<&KnownRow> {
        let (chunk, offset) = place_of(row);
        let known = &self.chunks.get(chunk)?.as_ref()?.rows[offset];
        (known.is_known() && known.generation == row.generation()).then_some(known)
    }

    /// The facts on an existing row, to be added to.
    pub(super) fn at_mut(&mut self, row: RowId) -> &mut KnownRow {
        let (chunk, offset) = place_of(row);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let chunk = self.chunks[chunk]
            .get_or_insert_with(|| Box::new(KnownRows { rows: [UNKNOWN; CHUNK], known: 0 }));
        let known = &mut chunk.rows[offset];
        if !known.is_known() {
            *known = KnownRow { generation: row.generation(), emission: NONE, first: NONE };
            chunk.known += 1;
            self.known += 1;
        }
        known
    }

    /// Takes out what is known of a row, which is gone.
    pub(super) fn take(&mut self, row: RowId, memory: &mut impl Takes) -> Option<KnownRow> {
        let taken = *self.get(row)?;
        let (place, offset) = place_of(row);
        let chunk = self.chunks[place].as_mut()?;
        chunk.rows[offset] = UNKNOWN;
        chunk.known -= 1;
        self.known -= 1;
        if chunk.known == 0
            && let Some(chunk) = self.chunks[place].take()
        {
            memory.take_memory(chunk);
        }
        Some(taken)
    }

    /// How many rows are known; those that are.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn entries(&self) -> (usize, impl Iterator<Item = (RowId, &KnownRow)>) {
        let rows = self.chunks.iter().zip(0..).filter_map(|(chunk, number)| Some((chunk.as_ref()?, number)));
        let rows = rows.flat_map(|(chunk, number)| {
            chunk.rows.iter().zip(number * CHUNK as u32..).filter(|(known, _)| known.is_known())
        });
        (self.known, rows.map(|(known, index)| (RowId::new(index, known.generation), known)))
    }

    /// How many bytes there are for what is known.
    #[cfg(all(test, not(uruk_loom)))]
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count();
        chunks * size_of::<KnownRows>() + self.chunks.capacity() * size_of::<usize>()
    }
}

fn place_of(row: RowId) -> (usize, usize) {
    (row.index() as usize / CHUNK, row.index() as usize % CHUNK)
}
