//! Tables: [`TableRow`] reads them, and [`TableWriter`] writes them.

use std::collections::HashMap;

use super::format::{REGIONS, Region};
use super::units::UnitKey;
use crate::link::{Rebase, RebaseTarget, RuntimeEntry, TlsFact};

/// A row of a table. Numbers beyond its end are zero.
#[derive(Clone, Copy)]
pub(super) struct TableRow<'t>(pub(super) &'t [u8]);

impl TableRow<'_> {
    pub(super) fn byte(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub(super) fn half(self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    pub(super) fn key(self, at: usize) -> UnitKey {
        self.0.get(at..at + 32).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
    }

    pub(super) fn bits(self, at: usize) -> u128 {
        let bytes = self.0.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u128::from_le_bytes)
    }

    pub(super) fn word(self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }
}

/// The tables of a file, one after the other, and the text behind them.
#[derive(Default)]
pub(super) struct TableWriter<'i> {
    bytes: Vec<u8>,
    regions: [(u32, u32); REGIONS],
    start: usize,
    text: Vec<u8>,
    known: HashMap<&'i str, u32>,
    known_bytes: HashMap<&'i [u8], u32>,
}

impl<'i> TableWriter<'i> {
    pub(super) fn halves(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.bytes.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
    }

    pub(super) fn words(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    }

    pub(super) fn key(&mut self, unit: u32, name: &'i str, key: &UnitKey) {
        let name = self.name(name);
        self.halves([unit, name]);
        self.bytes.extend_from_slice(key);
    }

    /// Ends a table, whose rows have been added since the last one ended.
    pub(super) fn end(&mut self, region: Region) {
        let count = (self.bytes.len() - self.start) / region.row_bytes();
        self.regions[region as usize] = (self.start as u32, count as u32);
        self.start = self.bytes.len();
    }

    /// The place of a name in the text.
    pub(super) fn name(&mut self, name: &'i str) -> u32 {
        let text = &mut self.text;
        *self.known.entry(name).or_insert_with(|| {
            let at = text.len() as u32;
            text.extend_from_slice(name.as_bytes());
            text.push(0);
            at
        })
    }

    /// Bytes of the host: their place in the text, and their length.
    pub(super) fn host_bytes(&mut self, bytes: &'i [u8]) -> [u32; 2] {
        let text = &mut self.text;
        let at = *self.known_bytes.entry(bytes).or_insert_with(|| {
            let at = text.len() as u32;
            text.extend_from_slice(bytes);
            at
        });
        [at, bytes.len() as u32]
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn field(&mut self, field: &Rebase) {
        let fact = |fact| match fact {
            TlsFact::Module => 0,
            TlsFact::Offset => 1,
            TlsFact::Distance => 2,
        };
        let (target, detail, value) = match field.target {
            RebaseTarget::Fixed(value) => (0, 0, value),
            RebaseTarget::Import(import) => (1, 0, import.into()),
            RebaseTarget::Relative(segment, offset) => (2, segment, offset),
            RebaseTarget::Entry(RuntimeEntry::IfuncThunk) => (3, 0, 0),
            RebaseTarget::Entry(RuntimeEntry::TlsDynamic) => (3, 1, 0),
            RebaseTarget::Entry(RuntimeEntry::TlsAbsent) => (3, 2, 0),
            RebaseTarget::OwnTls(of, more) => (4, fact(of), more),
            RebaseTarget::ImportTls(of, import) => (5, fact(of), import.into()),
        };
        self.bytes.extend([field.segment, field.kind.number(), target, detail]);
        self.halves([field.offset as u32]);
        self.words([value, field.addend.cast_unsigned()]);
    }

    pub(super) fn finish(mut self) -> (Vec<u8>, [(u32, u32); REGIONS]) {
        let text = std::mem::take(&mut self.text);
        self.bytes.extend_from_slice(&text);
        self.end(Region::Text);
        (self.bytes, self.regions)
    }
}
