//! [`PackIndex`]: where the entries of one generation lie, as far as this process has read its index file.
//!
//! The file is only ever appended to, so new slots are read from where the last look ended. A slot is a hint.

use super::format::{PackSlot, SLOT_BYTES};

/// The slots of a generation, found by the tags of their keys.
#[derive(Debug, Default)]
pub(super) struct PackIndex {
    slots: Vec<PackSlot>,
    /// Places of slots, plus one; 0 is free. A power of two of them, of which at most half are taken.
    ///
    /// Tags are hashes already, and the directory is ours alone: no other hash is needed, with a secret or without.
    table: Vec<u32>,
    /// How many slots of the file were read, those for nothing included.
    read: u64,
    sealed: bool,
}

impl PackIndex {
    /// The slot of a key with this tag, the last one if there are several.
    pub(super) fn find(&self, tag: u64) -> Option<PackSlot> {
        if self.table.is_empty() {
            return None;
        }
        let at = self.table[self.place(tag)];
        at.checked_sub(1).map(|at| self.slots[at as usize])
    }

    /// Adds what was read of the file behind [`PackIndex::read`]. A part of a slot at the end is left for the next look.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let (slots, _) = bytes.as_chunks::<SLOT_BYTES>();
        self.reserve(slots.len());
        self.read += slots.len() as u64;
        for slot in slots.iter().map(PackSlot::decode) {
            if slot == PackSlot::SEAL {
                self.sealed = true;
            } else if slot.length().is_ok() {
                self.add(slot);
            }
        }
    }

    /// How many slots of the file were read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Whether nothing is appended to this generation any more.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The slots that count.
    pub(super) fn slots(&self) -> &[PackSlot] {
        &self.slots
    }

    fn add(&mut self, slot: PackSlot) {
        let place = self.place(slot.tag);
        match self.table[place].checked_sub(1) {
            Some(at) => self.slots[at as usize] = slot,
            None => {
                self.slots.push(slot);
                self.table[place] = u32::try_from(self.slots.len()).expect("an index has few slots");
            }
        }
    }

    /// Where the tag stands in the table, or belongs.
    fn place(&self, tag: u64) -> usize {
        let mask = self.table.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "only low bits are wanted")]
        let mut place = tag as usize & mask;
        while let Some(at) = self.table[place].checked_sub(1)
            && self.slots[at as usize].tag != tag
        {
            place = (place + 1) & mask;
        }
        place
    }

    /// Makes room for as many slots more.
    fn reserve(&mut self, more: usize) {
        let wanted = (self.slots.len() + more) * 2;
        if wanted <= self.table.len() {
            return;
        }
        self.table = vec![0; wanted.next_power_of_two()];
        self.slots.reserve(more);
        for at in 0..self.slots.len() {
            let place = self.place(self.slots[at].tag);
            self.table[place] = u32::try_from(at + 1).expect("an index has few slots");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Key;

    fn slot(number: u64, offset: u64) -> PackSlot {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        PackSlot::new(&Key::from_bytes(key), offset, 100).expect("small numbers")
    }

    #[test]
    fn a_slot_is_found_by_its_tag_and_the_last_one_counts() {
        let mut index = PackIndex::default();
        assert_eq!(index.find(1), None);
        // Tags that begin at the same place of the table.
        for number in 0..1000 {
            index.extend(&slot(number * 1024, number * 64).encode());
        }
        index.extend(&slot(5 * 1024, 0).encode());
        for number in 0..1000 {
            let offset = if number == 5 { 0 } else { number * 64 };
            assert_eq!(index.find(number * 1024), Some(slot(number * 1024, offset)));
        }
        assert_eq!(index.find(77), None);
        assert_eq!((index.slots().len(), index.read()), (1000, 1001));
    }

    #[test]
    fn half_a_slot_is_left_and_what_is_no_slot_is_passed_over() {
        let mut index = PackIndex::default();
        let bytes = slot(3, 64).encode();
        index.extend(&bytes[..9]);
        assert_eq!(index.read(), 0);
        index.extend(&[[0; 16], bytes, PackSlot::SEAL.encode()].concat());
        assert_eq!((index.read(), index.slots().len(), index.is_sealed()), (3, 1, true));
    }
}
