//! A scene: a state with one dylib, built step by step, in which symbols are called by their text.

use crate::ids::SessionTag;
use crate::protocol::state::{Effects, Search, SessionState};
use crate::protocol::storage::{ClaimId, DylibId, QueryId, RowId};
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, LookupSet, RequiredState, SymbolFlags,
    SymbolFlagsMap, SymbolName, SymbolStringPool,
};

use super::numbers::{Numbers, exported, search, with_main};

pub(super) struct Scene {
    pub(super) state: SessionState<Numbers>,
    pool: SymbolStringPool,
    pub(super) dylib: DylibId,
    pub(super) effects: Effects<Numbers>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let (state, pool, dylib) = with_main(false);
        Self { state, pool, dylib, effects: Effects::default() }
    }

    pub(super) fn name(&self, name: &str) -> SymbolName {
        self.pool.intern(name)
    }

    pub(super) fn flags(&self, name: &str) -> SymbolFlagsMap {
        exported([&self.name(name)])
    }

    pub(super) fn row(&self, name: &str) -> RowId {
        self.state.definitions.find(self.dylib, &self.name(name)).expect("it was defined")
    }

    pub(super) fn search(&self, names: &[&str]) -> Search {
        let symbols = LookupSet::required(names.iter().map(|name| self.name(name)));
        search(self.dylib, symbols, RequiredState::Ready)
    }

    pub(super) fn look_up(&mut self, handler: u32, names: &[&str]) -> Option<QueryId> {
        let search = self.search(names);
        self.state.lookup(search, handler, |_| "main".into(), &mut self.effects)
    }

    pub(super) fn resolve(&mut self, claim: ClaimId, name: &str) {
        let (unit, symbols) = (self.name(name), self.flags(name));
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = [(self.name(name), address)].into_iter().collect();
        self.state.resolve(claim, &unit, &symbols, &addresses, &mut self.effects).unwrap();
    }

    /// Resolves and emits a claimed symbol that needs these.
    pub(super) fn emit(&mut self, claim: ClaimId, name: &str, needs: &[&str]) {
        self.resolve(claim, name);
        let (unit, symbols) = (self.name(name), self.flags(name));
        let token = |name: &&str| Dependency { row: self.row(name), session: SessionTag::default() };
        let dependencies = needs.iter().map(token).collect();
        let group = DependenceGroup { symbols: vec![self.name(name)], dependencies };
        self.state.emit(claim, &unit, &symbols, &[group], &mut self.effects).unwrap();
    }
}
