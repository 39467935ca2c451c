//! The last notes that were read, each with its number, for clients that come and go.
//!
//! It is bounded: the oldest notes make room for new ones, and a client that asks for those is told how many it has lost.

use std::collections::{HashMap, VecDeque};

use uruk_recorder::{Batch, Kind, Name, Note, Reader, ThreadId};

/// How many notes are kept: 40 MB.
pub(super) const NOTES_MAX: usize = 1 << 20;

/// One note, as clients have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Nanoseconds since the recorder began.
    pub(super) time: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) name: u32,
    pub(super) kind: u16,
    pub(super) session: u16,
    /// Dense, in the order in which threads came.
    pub(super) thread: u16,
}

/// Notes, and the names that they have.
#[derive(Debug, Default)]
pub(super) struct Store {
    rows: VecDeque<Row>,
    /// The number of the first row.
    first: u64,
    /// How many notes the rings had lost before they were read.
    pub(super) lost: u64,
    /// The first is none.
    pub(super) names: Vec<String>,
}

impl Store {
    /// The number that the next note will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    /// The number of the oldest note that is left.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn push(&mut self, row: Row) {
        if self.rows.len() == NOTES_MAX {
            self.rows.pop_front();
            self.first += 1;
        }
        self.rows.push_back(row);
    }

    /// The notes of a session that say how its lookups were answered. Their names are indices into [`names`](Self::names).
    pub(super) fn of_lookups(&self, session: u16) -> Batch {
        use Kind::*;
        let wanted = [Lodged, Completed, QueryFailed, Withdrawn, Claimed, Begun, Returned];
        let note = |row: &Row| {
            let kind = wanted.into_iter().find(|&kind| kind as u16 == row.kind && row.session == session)?;
            let Row { time, a, b, name, .. } = *row;
            let note = Note { time, kind, session, name: Name::of_number(name), a, b };
            Some((ThreadId(row.thread.into()), note))
        };
        Batch { notes: self.rows.iter().filter_map(note).collect(), lost: self.lost }
    }

    /// At most `count` notes from a number on, or from the oldest that is left.
    pub(super) fn from(&self, number: u64, count: usize) -> impl Iterator<Item = &Row> + Clone {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.rows.range(skipped.min(self.rows.len())..).take(count)
    }
}

/// A recording, and what was read from it.
#[derive(Debug)]
pub(super) struct Feed {
    reader: Reader,
    /// This process goes on while nothing is noted; a file does not.
    is_live: bool,
    pub(super) store: Store,
    threads: HashMap<ThreadId, u16>,
    names: HashMap<Name, u32>,
    /// A recording may have a text several times.
    texts: HashMap<String, u32>,
}

impl Feed {
    pub(super) fn new(reader: Reader, is_live: bool) -> Self {
        let mut store = Store::default();
        store.names.push(String::new());
        let (threads, names) = (HashMap::new(), [(Name::NONE, 0)].into());
        Self { reader, is_live, store, threads, names, texts: [(String::new(), 0)].into() }
    }

    /// Nanoseconds since the recording began; in a file, up to its last note.
    pub(super) fn now(&self) -> u64 {
        let noted = self.store.rows.back().map_or(0, |row| row.time);
        let passed = self.reader.began().elapsed().unwrap_or_default().as_nanos();
        if self.is_live { noted.max(u64::try_from(passed).unwrap_or(u64::MAX)) } else { noted }
    }

    /// The process that writes the recording, or has written it.
    pub(super) fn process(&self) -> u32 {
        self.reader.process()
    }

    /// Takes in what has been noted since the last time.
    pub(super) fn read(&mut self) {
        let batch = self.reader.read();
        self.store.lost = self.store.lost.saturating_add(batch.lost);
        for (thread, note) in batch.notes {
            let count = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
            let thread = *self.threads.entry(thread).or_insert(count);
            let name = self.name(note.name);
            let Note { time, kind, session, a, b, .. } = note;
            self.store.push(Row { time, a, b, name, kind: kind as u16, session, thread });
        }
    }

    /// The index of a name among those that clients have.
    fn name(&mut self, name: Name) -> u32 {
        if let Some(&known) = self.names.get(&name) {
            return known;
        }
        let text = self.reader.name(name);
        let next = u32::try_from(self.store.names.len()).unwrap_or(0);
        let index = *self.texts.entry(text.clone()).or_insert(next);
        if index == next {
            self.store.names.push(text);
        }
        self.names.insert(name, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notes_make_room() {
        let mut store = Store::default();
        for time in 0..NOTES_MAX as u64 + 3 {
            store.push(Row { time, ..Row::default() });
        }
        assert_eq!((store.first(), store.next()), (3, NOTES_MAX as u64 + 3));
        assert_eq!(store.from(0, 1).next().map(|row| row.time), Some(3));
        assert_eq!(store.from(store.next() - 1, 9).count(), 1);
        assert_eq!(store.from(u64::MAX, 9).count(), 0);
    }
}
