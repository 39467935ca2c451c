//! An area without a process around it, for `loom-tests/tests/models/recorder.rs`.

use crate::area::Area;
use crate::layout::Layout;
use crate::names::{Name, NameCell};
use crate::note::NOTE_WORDS;
use crate::ring::Writer;

/// An area that is small enough for a model.
#[derive(Debug)]
pub struct SmallArea {
    area: Area,
    /// Of the first ring.
    writer: Writer,
}

impl SmallArea {
    /// With so many rings of so many notes.
    pub fn new(rings: usize, ring_notes: usize) -> Self {
        let area = Area::owned(Layout { ring_notes, rings, name_words: 8 });
        let writer = Writer::of(area.layout.ring(0), area.words());
        Self { area, writer }
    }

    /// Finds a ring for a thread, where no thread ends.
    pub fn find_ring(&self, system: u32) -> Option<usize> {
        self.area.find_ring(system, &|_| true)
    }

    /// Writes notes of four equal words into the first ring: 1, 2 and so on. For one thread, once.
    pub fn write(&self, notes: u64) {
        let mut writer = self.writer;
        (1..=notes).for_each(|value| writer.push(self.area.words(), [value; NOTE_WORDS]));
    }

    /// Reads the first ring from a note on: the position of the first, and the words of each.
    pub fn read(&self, from: u64) -> (u64, Vec<[u64; NOTE_WORDS]>) {
        let mut notes = Vec::new();
        let positions = self.area.layout.ring(0).read(self.area.words(), from, &mut notes);
        (positions.expect("the ring is inside the area").start, notes)
    }

    /// The name that the cell keeps, or writes now.
    pub fn name(&self, cell: &NameCell, text: &str) -> Name {
        cell.get_or(|| self.area.write_name(text))
    }

    /// The text of a name.
    pub fn text(&self, name: Name) -> String {
        self.area
            .names()
            .read(self.area.words(), name)
            .expect("names are inside the area")
            .unwrap_or_default()
    }
}
