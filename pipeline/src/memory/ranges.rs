//! All ranges of an in-process manager: which of them an object goes to, and when there is another.
//!
//! ```text
//!   near   [ first ] [ second ] ...     anywhere; the first is kept, a further one goes with its last object
//!   low    [ first ] ...                below 2 GiB, from the first object on that needs it
//!   aside  [ object ] [ object ] ...    objects whose data takes up too much of a range (`aside.rs`); for those with low
//!                                       addresses, each segment begins below 2 GiB
//! ```
//!
//! All segments of an object lie in one range, and so reach each other. Two objects may lie in different ranges: each then reaches the
//! other as it reaches a library, through a stub or a table of addresses.
//!
//! Ranges are tried in their order, so that objects lie in few of them and the last ones become free.

use std::collections::BTreeMap;
use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::arena::{Arena, Refusal, SLAB_ALIGN, SLAB_BYTES, is_large};
use super::aside;
use super::mapping::ReservedRange;
use super::piece::Piece;
use super::places::{FileStretch, MappedSegments, ProgramWindow};
use super::reserve;
use super::slab::Slab;
use super::window::Window;
use super::{MemoryError, MemoryUsage, SegmentKind, SegmentRequest};

/// Where an allocation may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Anywhere,
    /// Below 2 GiB, where 32 bits hold an address.
    Low,
}

/// Data of this size may have no room in low addresses.
const GREAT_BYTES: usize = 64 << 20;

/// How large ranges are and how many there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Size of a range. Less is taken where the system grants less, unless this was demanded.
    pub(super) range_bytes: usize,
    pub(super) is_demanded: bool,
    /// How much the ranges that may lie anywhere amount to at most.
    pub(super) reserve_bytes_max: usize,
}

/// The bookkeeping of a manager, under its lock.
#[derive(Debug)]
pub(super) struct Ranges {
    sizes: Sizes,
    /// At least one.
    near: Vec<Arena>,
    low: Vec<Arena>,
    /// Slabs that belong to one piece each.
    aside: BTreeMap<usize, Slab>,
    /// The segments of files that are mapped, by where each file begins.
    files: BTreeMap<usize, MappedSegments>,
    /// Allocations that are alive.
    pub(super) allocations: u64,
    /// Whether code was ever given back: its memory may be used again.
    pub(super) has_old_code: bool,
}

impl Ranges {
    pub(super) fn new(first: Arena, sizes: Sizes) -> Self {
        Self {
            sizes,
            near: vec![first],
            low: Vec::new(),
            aside: BTreeMap::new(),
            files: BTreeMap::new(),
            allocations: 0,
            has_old_code: false,
        }
    }

    /// The addresses of the first range.
    pub(super) fn first(&self) -> Range<usize> {
        self.near[0].range().clone()
    }

    /// Where the first keeps a program.
    pub(super) fn window(&self) -> Option<ProgramWindow> {
        self.near[0].window().map(Window::addresses)
    }

    /// Takes addresses for a file where the first range keeps a program, if there is room.
    pub(super) fn take_file(&mut self, stretch: &FileStretch<'_>) -> Option<usize> {
        self.near[0].take_file(stretch)
    }

    /// Notes that the segments of a file are mapped from `start` on.
    pub(super) fn note_file(&mut self, start: usize, segments: MappedSegments) {
        self.files.insert(start, segments);
    }

    /// Forgets a file. Its addresses go back if they are of a range.
    pub(super) fn drop_file(&mut self, range: Range<usize>) {
        self.files.remove(&range.start);
        if self.near[0].range().contains(&range.start) {
            self.near[0].give_back_file(range);
        }
    }

    /// All memory that is mapped for segments, by purpose.
    pub(super) fn mapped(&self) -> MappedSegments {
        let address = |address: usize| ExecutorAddr::new(address as u64);
        let slabs = self.slabs();
        let slabs = slabs.map(|slab| (address(slab.range().start)..address(slab.range().end), slab.kind()));
        slabs.chain(self.files.values().flatten().cloned()).collect()
    }

    /// Takes a piece for each of `requests`, all in one range, or, where data takes up too much of any, all in a
    /// range of their own.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is taken.
    pub(super) fn take_all(
        &mut self,
        owner: &str,
        requests: &[SegmentRequest],
        reach: Reach,
    ) -> Result<Vec<Piece>, MemoryError> {
        match self.take_together(owner, requests, reach) {
            // As in a file at a fixed place, the start of each segment has a low address.
            Err(error) if reach == Reach::Low && requests.iter().any(is_great) => {
                self.take_aside(owner, requests, reserve::from_below).map_err(|_| error)
            }
            taken => taken,
        }
    }

    fn take_together(
        &mut self,
        owner: &str,
        requests: &[SegmentRequest],
        reach: Reach,
    ) -> Result<Vec<Piece>, MemoryError> {
        let mut full = (SegmentKind::Code, 0);
        for index in 0..self.arenas(reach).len() {
            match self.take_in(index, owner, requests, reach) {
                Err(Refusal::Full { kind, size_bytes }) => full = (kind, size_bytes),
                Err(Refusal::Failed(error)) => return Err(error),
                Ok(pieces) => return Ok(pieces),
            }
        }
        if reach == Reach::Anywhere && self.goes_aside(requests) {
            return self.take_aside(owner, requests, ReservedRange::reserve);
        }
        if reach == Reach::Anywhere && !self.may_grow() {
            return Err(self.exhausted(owner, full, reach));
        }
        self.add_range(owner, requests, reach)?;
        let last = self.arenas(reach).len() - 1;
        let taken = self.take_in(last, owner, requests, reach);
        let result = taken.map_err(|refusal| match refusal {
            Refusal::Full { kind, size_bytes } => self.exhausted(owner, (kind, size_bytes), reach),
            Refusal::Failed(error) => error,
        });
        if result.is_err() {
            self.drop_unused(reach);
        }
        result
    }

    /// Whether `requests` have data that is better kept out of the ranges, or that would not come in otherwise.
    fn goes_aside(&self, requests: &[SegmentRequest]) -> bool {
        let data = requests.iter().filter(|request| request.kind == SegmentKind::Data);
        let bytes = data.clone().map(SegmentRequest::total_bytes).fold(0, usize::saturating_add);
        bytes > self.near[0].range().len() / 4 || (!self.may_grow() && data.clone().any(is_large))
    }

    /// Whether there may be another range that lies anywhere.
    fn may_grow(&self) -> bool {
        reserved_bytes(&self.near).saturating_add(self.sizes.range_bytes) <= self.sizes.reserve_bytes_max
    }

    fn take_in(
        &mut self,
        index: usize,
        owner: &str,
        requests: &[SegmentRequest],
        reach: Reach,
    ) -> Result<Vec<Piece>, Refusal> {
        let mut pieces = Vec::with_capacity(requests.len());
        for request in requests {
            // The room within reach of code is for segments that need it.
            let taken = if request.kind == SegmentKind::FarData && is_large(request) {
                let one = std::slice::from_ref(request);
                let aside = self.take_aside(owner, one, ReservedRange::reserve).map_err(Refusal::Failed);
                aside.map(|aside| pieces.extend(aside))
            } else {
                self.arenas(reach)[index].take(request).map(|piece| pieces.push(piece))
            };
            if let Err(refusal) = taken {
                pieces.iter().rev().for_each(|piece| self.give_back_piece(piece));
                return Err(refusal);
            }
        }
        Ok(pieces)
    }

    fn take_aside(
        &mut self,
        owner: &str,
        requests: &[SegmentRequest],
        reserve: fn(usize) -> Result<ReservedRange, MemoryError>,
    ) -> Result<Vec<Piece>, MemoryError> {
        let slabs = aside::map(owner, requests, self.near[0].views(), reserve)?;
        let pieces = slabs.into_iter().zip(requests).map(|(mut slab, request)| {
            let piece = slab.hand_out(slab.range().clone(), request.content_bytes);
            self.aside.insert(slab.range().start, slab);
            piece
        });
        Ok(pieces.collect())
    }

    fn add_range(
        &mut self,
        owner: &str,
        requests: &[SegmentRequest],
        reach: Reach,
    ) -> Result<(), MemoryError> {
        let slab_bytes = |request: &SegmentRequest| {
            let aligned = request.total_bytes().saturating_add(request.align.max(SLAB_BYTES));
            aligned.checked_next_multiple_of(SLAB_ALIGN).unwrap_or(usize::MAX)
        };
        let needed_bytes = requests.iter().map(slab_bytes).fold(0, usize::saturating_add);
        let reserved = match reach {
            Reach::Low => reserve::low(self.sizes.range_bytes, needed_bytes)
                .map_err(|_| MemoryError::NotLow { owner: owner.into() })?,
            Reach::Anywhere if self.sizes.is_demanded => reserve::exactly(self.sizes.range_bytes)?,
            Reach::Anywhere => reserve::near(self.sizes.range_bytes, needed_bytes)?,
        };
        let arena = Arena::new(reserved, self.near[0].views());
        self.arenas(reach).push(arena);
        Ok(())
    }

    const fn arenas(&mut self, reach: Reach) -> &mut Vec<Arena> {
        match reach {
            Reach::Anywhere => &mut self.near,
            Reach::Low => &mut self.low,
        }
    }

    fn all_arenas(&self) -> impl Iterator<Item = &Arena> {
        self.near.iter().chain(&self.low)
    }

    fn arena_of(&mut self, address: usize) -> Option<&mut Arena> {
        self.near.iter_mut().chain(&mut self.low).find(|arena| arena.range().contains(&address))
    }

    /// Takes a piece back that was taken.
    pub(super) fn give_back(&mut self, piece: &Piece) {
        self.give_back_piece(piece);
        self.drop_unused(Reach::Anywhere);
        self.drop_unused(Reach::Low);
    }

    fn give_back_piece(&mut self, piece: &Piece) {
        if let Some(arena) = self.arena_of(piece.range.start) {
            arena.give_back(piece);
            return;
        }
        let slab =
            self.aside.remove(&piece.range.start).expect("taken memory lies in a range or a slab of its own");
        // Unmapping a range of its own cannot run out of mappings.
        let _ = slab.release();
    }

    /// Drops unused ranges, except the first.
    fn drop_unused(&mut self, reach: Reach) {
        let mut kept = usize::from(reach == Reach::Anywhere);
        self.arenas(reach).retain(|arena| {
            let keep = kept > 0 || !arena.is_unused();
            kept = kept.saturating_sub(1);
            keep
        });
    }

    /// Forgets the working view of finalized pieces, where that is worth it.
    pub(super) fn settle(&mut self, piece: &Piece) {
        if let Some(arena) = self.arena_of(piece.range.start) {
            arena.settle(piece);
        } else if let Some(slab) = self.aside.get_mut(&piece.range.start) {
            slab.settle();
        }
    }

    /// Every slab of every range.
    pub(super) fn slabs(&self) -> impl Iterator<Item = &Slab> {
        self.all_arenas().flat_map(Arena::slabs).chain(self.aside.values())
    }

    /// Notes a fork, in the process that goes on.
    pub(super) fn note_fork_in_parent(&mut self) {
        self.near.iter_mut().chain(&mut self.low).for_each(Arena::note_fork_in_parent);
    }

    /// Notes a fork, in the new process.
    pub(super) fn note_fork_in_child(&mut self) {
        self.near.iter_mut().chain(&mut self.low).for_each(Arena::note_fork_in_child);
    }

    fn exhausted(&self, owner: &str, full: (SegmentKind, usize), reach: Reach) -> MemoryError {
        let arenas = if reach == Reach::Low { &self.low } else { &self.near };
        let slabs = arenas.iter().flat_map(Arena::slabs).map(|slab| slab.range().len() as u64);
        MemoryError::Exhausted {
            owner: owner.into(),
            kind: full.0,
            size_bytes: full.1 as u64,
            used_bytes: slabs.sum(),
            reserved_bytes: reserved_bytes(arenas) as u64,
        }
    }

    pub(super) fn usage(&self) -> MemoryUsage {
        let arenas: usize = self.all_arenas().map(|arena| arena.range().len()).sum();
        let aside: usize = self.aside.values().map(|slab| slab.range().len()).sum();
        let mut usage = MemoryUsage {
            reserved_bytes: (arenas + aside) as u64,
            allocations: self.allocations,
            ..MemoryUsage::default()
        };
        for slab in self.slabs() {
            let kind = usage.of_mut(slab.kind());
            kind.allocated_bytes += slab.live_bytes() as u64;
            kind.slab_bytes += slab.range().len() as u64;
            kind.resident_bytes += slab.resident_bytes();
            kind.withheld_bytes += slab.withheld_bytes() as u64;
        }
        usage
    }
}

/// Whether it is data that low addresses may have no room for.
fn is_great(request: &SegmentRequest) -> bool {
    request.kind == SegmentKind::Data && request.total_bytes() >= GREAT_BYTES
}

fn reserved_bytes(arenas: &[Arena]) -> usize {
    arenas.iter().map(|arena| arena.range().len()).sum()
}

impl Drop for Ranges {
    fn drop(&mut self) {
        for slab in self.aside.values() {
            // As in `give_back_piece`.
            let _ = slab.release();
        }
    }
}
