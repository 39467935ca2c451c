//! Rebases: the fields of a linked graph that change when the graph lies elsewhere, or when it meets other definitions.
//!
//! ```text
//!   fixups ─▶ bytes for one base          rebases + bytes + another base ─▶ the bytes that a link at that base would have written
//! ```
//!
//! Linking gives each field a value and forgets where the value came from. A graph that is linked [to be
//! rebased](super::LinkOptions::is_rebasable) keeps that for the fields that need it: an image may then be written to a file, mapped at any address, and bound
//! to other addresses of its imports.
//!
//! The segments of a graph move together, so a distance between two of them stays. Imports do not move with the graph, so code reaches
//! them through tables and stubs alone, even where they would be near.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;

use super::error::{LinkError, Site};
use super::graph::{Location, SymbolId};
use super::layout::{Place, Segment};
use super::placed::{Placed, Spot};
use crate::arch::{Architecture, EdgeKind, Operands};
use crate::executor::{RuntimeEntries, TlsPlacement};

/// The origin of a value: the target of a reference, wherever that lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebaseTarget {
    /// A number that stays.
    Fixed(u64),
    /// A symbol that the graph does not define, by its place among [`Rebases::imports`].
    Import(u32),
    /// A place of the graph: the number of a segment, and an offset there.
    Relative(u8, u64),
    /// A function that linked code calls without naming it.
    Entry(RuntimeEntry),
    /// A fact about the graph's own thread-local image, and a number that is added to it.
    OwnTls(TlsFact, u64),
    /// The same about the thread-local variable that is an import.
    ImportTls(TlsFact, u32),
}

/// A function among [`RuntimeEntries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeEntry {
    /// `ifunc_thunk`.
    IfuncThunk,
    /// `tls_resolvers.dynamic`.
    TlsDynamic,
    /// `tls_resolvers.absent`.
    TlsAbsent,
}

/// A fact about thread-local variables that only their place knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFact {
    /// The number of the module.
    Module,
    /// The offset in the module.
    Offset,
    /// The distance from the thread pointer.
    Distance,
}

/// A field whose value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebase {
    /// The number of the segment that it lies in.
    pub segment: u8,
    /// Where in the segment.
    pub offset: u64,
    /// How the value is computed and stored.
    pub kind: EdgeKind,
    /// Where it leads.
    pub target: RebaseTarget,
    /// The number that is added to the place of the target.
    pub addend: i64,
}

/// All fields of a graph that change.
#[derive(Clone, Debug)]
pub struct Rebases {
    /// The names that the graph does not define, in the order of their numbers.
    pub imports: Vec<Box<str>>,
    /// The fields, by segment.
    pub fields: Vec<Rebase>,
    arch: Architecture,
    /// Where the global offset table starts.
    got: (u8, u64),
}

/// Where a graph lies from now on, and what it meets there.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct RebaseTo<'t> {
    /// The addresses of its segments.
    pub segments: &'t [u64],
    /// The address of an import, by its number.
    pub import: &'t dyn Fn(u32) -> u64,
    /// The functions that linked code calls without naming them.
    pub entries: RuntimeEntries,
    /// The placement of the graph's own thread-local image, and its distance from the thread pointer.
    pub tls: Option<(TlsPlacement, i64)>,
    /// The same for an import that is a thread-local variable.
    pub import_tls: &'t dyn Fn(u32) -> Option<(TlsPlacement, i64)>,
}

impl Rebases {
    /// Changes the `contents` of the segments, so that they are right at the place `to`.
    ///
    /// # Errors
    /// [`LinkError::OutOfRange`] for the first value that does not fit its field.
    ///
    /// # Panics
    /// If there are fewer segments, or shorter ones, than those that were linked.
    ///
    /// # Cost
    /// A few instructions for each field that changes.
    pub fn apply(&self, contents: &mut [&mut [u8]], to: &RebaseTo<'_>) -> Result<(), LinkError> {
        for field in &self.fields {
            let bytes = &mut contents[usize::from(field.segment)][field.offset as usize..];
            self.apply_one(field, bytes, to)?;
        }
        Ok(())
    }

    /// Changes one field, which begins where `bytes` do and ends before they do.
    ///
    /// # Errors
    /// [`LinkError::OutOfRange`].
    pub(crate) fn apply_one(
        &self,
        field: &Rebase,
        bytes: &mut [u8],
        to: &RebaseTo<'_>,
    ) -> Result<(), LinkError> {
        let at = |(segment, offset): (u8, u64)| to.segments[usize::from(segment)].wrapping_add(offset);
        let &Rebase { segment, offset, kind, target, addend } = field;
        let operands =
            Operands { place: at((segment, offset)), target: to.value(target), addend, got: at(self.got) };
        self.arch.encode(kind, &operands, bytes).map_err(|overflow| {
            let symbol = match target {
                RebaseTarget::Import(import) => self.imports[import as usize].clone(),
                _ => "a place of the image".into(),
            };
            LinkError::OutOfRange {
                site: Box::new(Site { object: "image".into(), section: "".into(), offset }),
                kind: self.arch.kind_name(kind),
                symbol,
                target: ExecutorAddr::new(operands.target),
                value: overflow.value,
                bits: overflow.bits,
                signed: overflow.signed,
                advice: "",
            }
        })
    }

    /// Rebases of a graph for this machine whose global offset table is at `got`: a segment, and an offset there.
    pub(crate) fn new(imports: Vec<Box<str>>, fields: Vec<Rebase>, got: (u8, u64)) -> Self {
        Self { imports, fields, arch: Architecture::HOST, got }
    }

    /// The place of the global offset table.
    pub(crate) fn got(&self) -> (u8, u64) {
        self.got
    }
}

impl RebaseTo<'_> {
    fn value(&self, target: RebaseTarget) -> u64 {
        let fact = |fact, tls: Option<(TlsPlacement, i64)>| {
            let (placement, distance) = tls.unwrap_or((TlsPlacement { module: 0, offset: 0 }, 0));
            match fact {
                TlsFact::Module => placement.module,
                TlsFact::Offset => placement.offset,
                TlsFact::Distance => distance.cast_unsigned(),
            }
        };
        match target {
            RebaseTarget::Fixed(value) => value,
            RebaseTarget::Import(import) => (self.import)(import),
            RebaseTarget::Relative(segment, offset) => {
                self.segments[usize::from(segment)].wrapping_add(offset)
            }
            RebaseTarget::Entry(RuntimeEntry::IfuncThunk) => self.entries.ifunc_thunk.value(),
            RebaseTarget::Entry(RuntimeEntry::TlsDynamic) => self.entries.tls_resolvers.dynamic.value(),
            RebaseTarget::Entry(RuntimeEntry::TlsAbsent) => self.entries.tls_resolvers.absent.value(),
            RebaseTarget::OwnTls(of, more) => fact(of, self.tls).wrapping_add(more),
            RebaseTarget::ImportTls(of, import) => fact(of, (self.import_tls)(import)),
        }
    }
}

/// Notes the fields that change, if the graph is to be rebased.
pub(super) struct Notes<'p> {
    placed: &'p Placed,
    fields: Option<RefCell<Vec<Rebase>>>,
    imports: FxHashMap<SymbolId, u32>,
}

impl<'p> Notes<'p> {
    pub(super) fn new(placed: &'p Placed) -> Self {
        let fields: Option<RefCell<_>> = placed.plan.is_rebasable.then(RefCell::default);
        let externals = placed.plan.externals.iter().filter(|_| fields.is_some());
        Self { placed, imports: externals.copied().zip(0..).collect(), fields }
    }

    /// Whether fields are noted at all.
    #[inline]
    pub(super) fn are_taken(&self) -> bool {
        self.fields.is_some()
    }

    /// Whether code may refer to the symbol directly: it moves with the graph, or the graph does not move.
    #[inline]
    pub(super) fn moves_along(&self, symbol: SymbolId) -> bool {
        !self.are_taken() || matches!(self.placed.spot(symbol), Some(Spot::In(_)))
    }

    /// Where references to a symbol lead.
    pub(super) fn symbol(&self, symbol: SymbolId) -> RebaseTarget {
        match self.placed.spot(symbol) {
            Some(Spot::In(place)) => self.place(place),
            Some(Spot::At(address)) => RebaseTarget::Fixed(address),
            None => RebaseTarget::Import(self.import(symbol)),
        }
    }

    /// A fact about a thread-local variable.
    pub(super) fn tls(&self, fact: TlsFact, symbol: SymbolId) -> RebaseTarget {
        match self.placed.graph.symbols[symbol.index()].location {
            Location::Block(..) => {
                let more = if fact == TlsFact::Module { 0 } else { self.placed.image_offset(symbol) };
                RebaseTarget::OwnTls(fact, more)
            }
            Location::TlsModuleBase => RebaseTarget::OwnTls(fact, 0),
            _ => RebaseTarget::ImportTls(fact, self.import(symbol)),
        }
    }

    /// An address in a segment.
    pub(super) fn address(&self, segment: Segment, address: u64) -> RebaseTarget {
        let offset = address.wrapping_sub(self.placed.bases[segment as usize]);
        self.place(Place { segment, offset })
    }

    fn place(&self, Place { segment, offset }: Place) -> RebaseTarget {
        RebaseTarget::Relative(self.number(segment), offset)
    }

    /// The number of a segment. Nothing lies in one without bytes but names, and these are as near as the others.
    fn number(&self, segment: Segment) -> u8 {
        self.placed.indices[segment as usize].unwrap_or(0) as u8
    }

    fn import(&self, symbol: SymbolId) -> u32 {
        self.imports.get(&symbol).copied().unwrap_or(u32::MAX)
    }

    /// A word with an address.
    pub(super) fn word(&self, segment: Segment, offset: u64, target: RebaseTarget, addend: i64) {
        if self.are_taken() {
            self.field(segment, offset, self.placed.graph.arch.pointer(), target, addend);
        }
    }

    /// A field, if its value changes with the place of the graph or of its target.
    pub(super) fn field(
        &self,
        segment: Segment,
        offset: u64,
        kind: EdgeKind,
        target: RebaseTarget,
        addend: i64,
    ) {
        let Some(fields) = &self.fields else { return };
        const MOVED_BY: u64 = 1 << 20;
        const IMPORTS_MOVED_BY: u64 = 1 << 28;
        let here = Operands { place: 0, target: 0, addend, got: 0 };
        let target_moved = match target {
            RebaseTarget::Fixed(_) => 0,
            RebaseTarget::Relative(..) => MOVED_BY,
            _ => IMPORTS_MOVED_BY,
        };
        let there = Operands { place: MOVED_BY, target: target_moved, addend, got: MOVED_BY };
        let arch = self.placed.graph.arch;
        if arch.value(kind, &here) != arch.value(kind, &there) {
            let segment = self.number(segment);
            fields.borrow_mut().push(Rebase { segment, offset, kind, target, addend });
        }
    }

    /// All that was noted.
    pub(super) fn take(self) -> Option<Rebases> {
        let Placed { graph, plan, layout, .. } = self.placed;
        let got = (self.number(Segment::Data), layout.got);
        let fields = self.fields?.into_inner();
        let imports = plan.externals.iter().map(|id| graph.symbol_name(*id).into()).collect();
        Some(Rebases { imports, fields, arch: graph.arch, got })
    }
}
