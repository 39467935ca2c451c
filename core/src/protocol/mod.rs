//! The pure protocol.
#![expect(unused_variables, clippy::todo, reason = "signatures first")]

pub(crate) mod alias;
pub(crate) mod define;
pub(crate) mod effects;
pub(crate) mod emit;
pub(crate) mod ids;
pub(crate) mod lookup;
pub(crate) mod query;
pub(crate) mod slab;

use std::fmt;

use crate::sync::Arc;
use crate::*;
use alias::*;
use define::*;
use effects::*;
use emit::*;
use ids::*;
use lookup::*;

/// The types of the values the protocol carries and never looks into.
pub(crate) trait Payload {
    /// Provides definitions.
    type Unit;
    /// Is told when a query ends.
    type Handler: fmt::Debug;
    /// Provides units.
    type Generator: Clone;
    /// Lives as long as a tracker.
    type Resource;
}

pub(crate) struct SessionState<P: Payload> {
    units: Vec<P>,
}

type Order = Vec<(DylibId, JitDylibLookupFlags)>;

impl<P: Payload> SessionState<P> {
    pub(crate) fn new(observed: bool) -> Self {
        Self { units: Vec::new() }
    }
    pub(crate) fn finish_transaction(&mut self, effects: &mut Effects<P>) {}
    pub(crate) fn tracker_is_defunct(&self, t: TrackerId) -> bool {
        todo!()
    }
    pub(crate) fn add_resource(
        &mut self,
        t: TrackerId,
        r: P::Resource,
        e: &mut Effects<P>,
    ) -> Result<(), ()> {
        todo!()
    }
    pub(crate) fn add_claim_resource(
        &mut self,
        t: ClaimId,
        r: P::Resource,
        e: &mut Effects<P>,
    ) -> Result<(), ()> {
        todo!()
    }
    pub(crate) fn remove_tracker(&mut self, t: TrackerId, e: &mut Effects<P>) -> Vec<P::Resource> {
        todo!()
    }
    pub(crate) fn transfer_tracker(&mut self, t: TrackerId, d: TrackerId) -> Result<(), ()> {
        todo!()
    }
    pub(crate) fn release_tracker(&mut self, t: TrackerId) {
        todo!()
    }
    pub(crate) fn generated(
        &mut self,
        g: GeneratorId,
        q: QueryId,
        o: Result<(), SharedError>,
        e: &mut Effects<P>,
    ) {
        todo!()
    }
    pub(crate) fn requested(&mut self, c: ClaimId, s: &SymbolFlagsMap) -> Vec<SymbolName> {
        todo!()
    }
    pub(crate) fn define_materializing(
        &mut self,
        c: ClaimId,
        u: &SymbolName,
        s: SymbolFlagsMap,
        e: &mut Effects<P>,
    ) -> Result<SymbolFlagsMap, DefineError> {
        todo!()
    }
    pub(crate) fn replace(
        &mut self,
        c: ClaimId,
        s: &SymbolFlagsMap,
        d: Definition,
        u: P::Unit,
        e: &mut Effects<P>,
    ) -> Result<(), DefineError> {
        todo!()
    }
    pub(crate) fn resolve(
        &mut self,
        c: ClaimId,
        u: &SymbolName,
        s: &SymbolFlagsMap,
        a: &SymbolMap,
        e: &mut Effects<P>,
    ) -> Result<(), ResolveError> {
        todo!()
    }
    pub(crate) fn emit(
        &mut self,
        c: ClaimId,
        u: &SymbolName,
        s: &SymbolFlagsMap,
        a: Vec<EmitGroup>,
        e: &mut Effects<P>,
    ) -> Result<(), EmitError> {
        todo!()
    }
    pub(crate) fn fail(&mut self, c: ClaimId, s: &SymbolFlagsMap, a: FailureCause, e: &mut Effects<P>) {
        todo!()
    }
    pub(crate) fn row_of_claim(&mut self, c: ClaimId, s: &SymbolName) -> Option<RowId> {
        todo!()
    }
    pub(crate) fn delegate(&mut self, c: ClaimId, s: &[SymbolName]) -> Option<ClaimId> {
        todo!()
    }
    pub(crate) fn withdraw(&mut self, q: QueryId, e: &mut Effects<P>) {
        todo!()
    }
    pub(crate) fn link_order(&self, d: DylibId) -> Vec<(DylibId, Arc<str>, JitDylibLookupFlags)> {
        todo!()
    }
    pub(crate) fn set_link_order(&mut self, d: DylibId, o: Order) -> Result<(), DylibError> {
        todo!()
    }
    pub(crate) fn add_to_link_order(
        &mut self,
        d: DylibId,
        o: DylibId,
        f: JitDylibLookupFlags,
    ) -> Result<(), DylibError> {
        todo!()
    }
    pub(crate) fn remove_from_link_order(&mut self, d: DylibId, o: DylibId) {
        todo!()
    }
    pub(crate) fn add_generator(
        &mut self,
        d: DylibId,
        n: Arc<str>,
        g: P::Generator,
        e: &mut Effects<P>,
    ) -> GeneratorId {
        todo!()
    }
    pub(crate) fn remove_generator(&mut self, d: DylibId, g: GeneratorId, e: &mut Effects<P>) -> bool {
        todo!()
    }
    pub(crate) fn default_tracker(&self, d: DylibId) -> TrackerId {
        todo!()
    }
    pub(crate) fn create_tracker(&mut self, d: DylibId) -> TrackerId {
        todo!()
    }
    pub(crate) fn flags(&self, d: DylibId, n: Vec<SymbolName>) -> Vec<(SymbolName, SymbolFlags)> {
        todo!()
    }
    pub(crate) fn remove_names(
        &mut self,
        d: DylibId,
        n: &[SymbolName],
        e: &mut Effects<P>,
    ) -> Result<(), RemoveError> {
        todo!()
    }
    pub(crate) fn clear(&mut self, d: DylibId, e: &mut Effects<P>) -> Vec<P::Resource> {
        todo!()
    }
    pub(crate) fn create_dylib(&mut self, n: Arc<str>) -> Result<DylibId, DylibError> {
        todo!()
    }
    pub(crate) fn dylib_by_name(&self, n: &str) -> Option<(DylibId, Arc<str>)> {
        todo!()
    }
    pub(crate) fn remove_dylib(&mut self, d: DylibId, e: &mut Effects<P>) -> Vec<P::Resource> {
        todo!()
    }
    pub(crate) fn lookup(&mut self, s: Search, h: P::Handler, e: &mut Effects<P>) -> Option<QueryId> {
        todo!()
    }
    pub(crate) fn define(
        &mut self,
        d: DylibId,
        t: Option<TrackerId>,
        f: Definition,
        u: P::Unit,
        e: &mut Effects<P>,
    ) -> Result<(), DefineError> {
        todo!()
    }
    pub(crate) fn begin(
        &mut self,
        c: ClaimedUnit<P::Unit>,
        e: &mut Effects<P>,
    ) -> Option<ClaimedUnit<P::Unit>> {
        todo!()
    }
    pub(crate) fn start_closing(&mut self) -> bool {
        todo!()
    }
    pub(crate) fn close(&mut self, e: &mut Effects<P>) -> Vec<(Arc<str>, Vec<P::Resource>)> {
        todo!()
    }
}
