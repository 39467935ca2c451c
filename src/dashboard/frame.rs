//! Frames for clients: each has names and notes that the client does not have yet.
//!
//! Numbers are little-endian. Columns instead of records, so that a page looks at them in place.
//!
//! ```text
//!  0  magic          4   "UrK1"
//!  4  count          4   of notes
//!  8  first          8   float: number of the first note
//! 16  lost           8   float: notes that this client will not get, since the recorder began
//! 24  name_first     4   index of the first name below
//! 28  names_size     4   bytes of names, a multiple of 8
//! 32  now            8   float: nanoseconds since the recorder began
//! 40  names              a JSON array of texts, filled up with spaces
//!     time, a, b         count x 8 each, float
//!     name               count x 4
//!     kind, session, thread   count x 2 each
//!                        filled up with zeros to a multiple of 8
//! ```

use super::store::{Row, Store};

/// How many notes are in a frame at most.
const ROWS_MAX: usize = 1 << 14;

/// How many names are in a frame at most.
const NAMES_MAX: usize = 1 << 14;

/// The place of a client: the first note and the first name that it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) note: u64,
    pub(super) name: usize,
    /// Notes that were gone before the client asked for them.
    pub(super) missed: u64,
}

/// The next frame for a client, and where it is afterwards. A client that is at the end gets a frame without notes, which says what time it is.
pub(super) fn next(store: &Store, place: Place, now: u64) -> (Vec<u8>, Place) {
    let first = place.note.clamp(store.first(), store.next());
    let missed = place.missed + first.saturating_sub(place.note);
    let name_first = place.name.min(store.names.len());
    let names = &store.names[name_first..store.names.len().min(name_first + NAMES_MAX)];
    let name_end = name_first + names.len();
    // A note comes with its name or after it.
    let is_named = |row: &&Row| (row.name as usize) < name_end.max(1);
    let rows = store.from(first, ROWS_MAX).take_while(is_named);
    let count = rows.clone().count();
    let mut text = serde_json::to_vec(names).unwrap_or_else(|_| b"[]".to_vec());
    text.resize(text.len().next_multiple_of(8), b' ');

    let mut frame = Vec::with_capacity(40 + text.len() + (count * 34).next_multiple_of(8));
    frame.extend(b"UrK1");
    frame.extend((count as u32).to_le_bytes());
    frame.extend((first as f64).to_le_bytes());
    frame.extend(((missed + store.lost) as f64).to_le_bytes());
    frame.extend((name_first as u32).to_le_bytes());
    frame.extend((text.len() as u32).to_le_bytes());
    frame.extend((now as f64).to_le_bytes());
    frame.extend(text);
    for column in [|row: &Row| row.time, |row: &Row| row.a, |row: &Row| row.b] {
        rows.clone().for_each(|row| frame.extend((column(row) as f64).to_le_bytes()));
    }
    rows.clone().for_each(|row| frame.extend(row.name.to_le_bytes()));
    for column in [|row: &Row| row.kind, |row: &Row| row.session, |row: &Row| row.thread] {
        rows.clone().for_each(|row| frame.extend(column(row).to_le_bytes()));
    }
    frame.resize(frame.len().next_multiple_of(8), 0);
    (frame, Place { note: first + count as u64, name: name_end, missed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(frame: &[u8], at: usize) -> f64 {
        f64::from_le_bytes(frame[at..at + 8].try_into().expect("eight bytes"))
    }

    fn store(notes: u64) -> Store {
        let mut store = Store::default();
        store.names.extend(["", "main"].map(str::to_owned));
        for time in 0..notes {
            store.push(Row { time, name: 1, kind: 7, thread: 2, ..Row::default() });
        }
        store
    }

    #[test]
    fn a_frame_is_as_drawn() {
        let (frame, place) = next(&store(3), Place::default(), 9);
        assert_eq!(&frame[..8], b"UrK1\x03\0\0\0");
        assert_eq!(number(&frame, 32), 9.0);
        assert_eq!(&frame[40..56], b"[\"\",\"main\"]     ");
        assert_eq!(number(&frame, 56 + 8), 1.0);
        assert_eq!(frame.len(), 56 + (3_usize * 34).next_multiple_of(8));
        assert_eq!(place, Place { note: 3, name: 2, missed: 0 });
        let (frame, _) = next(&store(3), place, 9);
        assert_eq!(frame.len(), 48); // "[]" and no note
    }

    #[test]
    fn a_client_that_comes_too_late_is_told_how_much_it_has_lost() {
        let mut store = store(super::super::store::NOTES_MAX as u64 + 5);
        store.lost = 2;
        let (frame, place) = next(&store, Place::default(), 0);
        assert_eq!((number(&frame, 8), number(&frame, 16)), (5.0, 7.0));
        assert_eq!(place.missed, 5);
        // A number from another run of the program.
        assert_eq!(next(&store, Place { note: u64::MAX, ..place }, 0).1.note, store.next());
    }
}
