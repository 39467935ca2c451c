//! The hash table of one shard of the string pool.
//!
//! A pool of a million names is read and written at random, so what costs is cache misses, and bytes.
//! This table is linear probing in the order of the hashes:
//!
//! ```text
//!            home of 17         home of 52, 53, 55
//!               v                  v
//!  tags    0 0 17 19 0 0 0 0 0 0 0 52 53 53 55 0 0 ...    0 is a hole
//!  names   - - a  b  - - - - - - - c  d  e  f  - - ...
//! ```
//!
//! - `tags` holds 32 bits of each name's hash, never 0; within a run they ascend, and so they do in the
//!   whole table, because a name's home is its tag scaled to the table's length.
//! - Hence a probe ends at the first larger tag, and growing is one pass in order over both tables: it
//!   reads no text. A general table that hashes each text again spends more on that than on all else
//!   (120 of 290 ns for each of a million new names).
//! - Tables grow by a third, from two thirds full to nine tenths: 12 bytes a slot are 15 to 16 a name. By a fifth
//!   they would save one byte of those and move each name six times on the way to a million instead of four, which
//!   costs 10 of 100 ns.

use super::text::Pooled;
use super::window::{WINDOW, ending, equal};

/// Names by text, each with the 32-bit tag that the caller derives from its hash. One that is made has no room yet, and is full.
#[derive(Default)]
pub(super) struct NameTable {
    /// A whole window of holes ends each table that has room.
    tags: Vec<u32>,
    names: Vec<Option<Pooled>>,
    len: usize,
    /// How many slots are homes. Beyond them lies the overflow of the last run.
    homes: usize,
}

/// Where a name is, or where it belongs.
pub(super) enum NameSlot {
    Held(usize),
    Vacant(usize),
}

impl NameTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the next insertion wants [`NameTable::rebuild`] first.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.homes - self.homes / 10
    }

    /// A size that `len` names fill to two thirds: a third more will fit.
    pub(super) fn homes_for(len: usize) -> usize {
        len + len / 2
    }

    pub(super) fn name(&mut self, index: usize) -> &mut Pooled {
        self.names[index].as_mut().expect("a slot that `find` reports as held holds a name")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pooled> {
        self.names.iter().flatten()
    }

    /// Looks for `text` among the names with `tag`.
    #[inline(always)]
    pub(super) fn find(&self, tag: u32, text: &str) -> NameSlot {
        let mut at = home(tag, self.homes);
        // A name that sits elsewhere does so because its home was taken. Said by `names` and not by
        // `tags`, so that the two cache misses of a large table overlap.
        let Some(Some(_)) = self.names.get(at) else { return NameSlot::Vacant(at) };
        loop {
            let window = self.tags[at..].first_chunk::<WINDOW>().expect("holes end the table");
            let mut candidates = equal(window, tag);
            while candidates != 0 {
                let index = at + candidates.trailing_zeros() as usize;
                if let Some(name) = &self.names[index] {
                    // Equal tags are equal texts but for one in a thousand million, and who looks is given a handle.
                    name.fetch_to_give();
                    if name.as_str() == text {
                        return NameSlot::Held(index);
                    }
                }
                candidates &= candidates - 1;
            }
            let end = ending(window, tag);
            if end != 0 {
                return NameSlot::Vacant(at + end.trailing_zeros() as usize);
            }
            at += WINDOW;
        }
    }

    /// Puts `name` where `find` said that it belongs; the rest of its run moves up by one.
    pub(super) fn insert(&mut self, index: usize, tag: u32, name: Pooled) {
        let (mut tag, mut name) = (tag, Some(name));
        let mut end = index;
        while tag != 0 {
            std::mem::swap(&mut self.tags[end], &mut tag);
            std::mem::swap(&mut self.names[end], &mut name);
            end += 1;
        }
        self.len += 1;
        self.keep_holes_after(end);
    }

    /// Moves the names that `keep` wants to a table of `homes` slots, in one pass; drops the others.
    pub(super) fn rebuild(&mut self, homes: usize, mut keep: impl FnMut(&Pooled) -> bool) {
        let slots = homes + WINDOW;
        let tags = std::mem::replace(&mut self.tags, vec![0; slots]);
        let names = std::mem::take(&mut self.names);
        self.names.resize_with(slots, || None);
        self.homes = homes;
        self.len = 0;
        let mut free = 0;
        for (tag, name) in tags.into_iter().zip(names) {
            let Some(name) = name.filter(&mut keep) else { continue };
            let index = home(tag, homes).max(free);
            self.keep_holes_after(index + 1);
            self.tags[index] = tag;
            self.names[index] = Some(name);
            self.len += 1;
            free = index + 1;
        }
    }

    /// How many windows and texts `find` looks at when it is asked for each of the names once.
    #[cfg(all(test, not(uruk_loom)))]
    pub(super) fn steps(&self) -> usize {
        let (mut steps, mut equals) = (0, 0);
        for (index, &tag) in self.tags.iter().enumerate().filter(|(_, tag)| **tag != 0) {
            equals = if index > 0 && self.tags[index - 1] == tag { equals + 1 } else { 1 };
            steps += (index - home(tag, self.homes)) / WINDOW + 1 + equals;
        }
        steps
    }

    /// Restores what every loop here leans on: a whole window of holes after the last name.
    #[inline]
    fn keep_holes_after(&mut self, end: usize) {
        if end + WINDOW > self.tags.len() {
            self.tags.resize(end + WINDOW, 0);
            self.names.resize_with(end + WINDOW, || None);
        }
    }
}

/// The slot where a probe for `tag` begins: the tag scaled from 32 bits to the table.
#[inline]
fn home(tag: u32, homes: usize) -> usize {
    ((u64::from(tag) * homes as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Asserts the invariants that every operation relies on.
    fn check(table: &NameTable) {
        let mut last = (0, 0);
        for (index, (&tag, name)) in table.tags.iter().zip(&table.names).enumerate() {
            assert_eq!(tag == 0, name.is_none(), "a tag without a name or a name without a tag");
            if tag == 0 {
                continue;
            }
            assert!(last.0 <= tag, "tags ascend");
            let home = home(tag, table.homes);
            assert!(home == index || (home < index && last.1 + 1 == index), "no hole between home and slot");
            last = (tag, index);
        }
        assert!(table.tags.iter().rev().take(WINDOW).all(|&tag| tag == 0), "a window of holes at the end");
        assert_eq!(table.len, table.iter().count());
    }

    #[test]
    fn a_table_without_room_is_empty_and_full() {
        let mut table = NameTable::default();
        for tag in [1, u32::MAX] {
            assert!(matches!(table.find(tag, "f"), NameSlot::Vacant(_)));
        }
        assert!(table.is_full());
        assert_eq!((table.len(), table.iter().count()), (0, 0));
        table.rebuild(1, |_| true);
        assert!(!table.is_full());
        check(&table);
    }

    proptest! {
        #[test]
        fn table_agrees_with_a_map(
            operations in prop::collection::vec((0..4u8, prop_oneof![0..40u32, Just(u32::MAX), any::<u32>()], 0..6u8), 1..200),
        ) {
            let mut table = NameTable::default();
            table.rebuild(3, |_| true);
            let mut model = BTreeMap::new();
            for (operation, tag, text) in operations {
                // Few distinct hashes: long runs, equal tags and an overflow past the last home.
                let tag = if tag < 40 { tag / 4 * 0x1111_1111 } else { tag }.max(1);
                let text = format!("{tag:x}.{text}");
                match operation {
                    0 => {
                        table.rebuild(NameTable::homes_for(table.len()).max(3), |name| !name.as_str().ends_with('3'));
                        model.retain(|text: &String, _| !text.ends_with('3'));
                    }
                    _ => match table.find(tag, &text) {
                        NameSlot::Held(index) => {
                            prop_assert!(model.contains_key(&text));
                            prop_assert_eq!(table.name(index).as_str(), &text);
                        }
                        NameSlot::Vacant(index) => {
                            prop_assert!(!model.contains_key(&text));
                            table.insert(index, tag, Pooled::new(&text));
                            model.insert(text, tag);
                        }
                    },
                }
                check(&table);
            }
            for (text, &tag) in &model {
                prop_assert!(matches!(table.find(tag, text), NameSlot::Held(_)));
            }
            prop_assert_eq!(table.len(), model.len());
        }
    }
}
