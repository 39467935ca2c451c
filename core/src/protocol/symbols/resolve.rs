//! Resolve: addresses are recorded, and lookups that wanted no more than that are answered.

use smallvec::SmallVec;
use uruk_recorder::Kind;

use crate::{
    EventKind, ExecutorAddr, ExecutorSymbolDef, RequiredState, ResolveError, SymbolFlags, SymbolFlagsMap,
    SymbolMap, SymbolName,
};

use crate::protocol::state::{Effects, Payload, SessionState};
use crate::protocol::storage::{ClaimId, RowId};

impl<P: Payload> SessionState<P> {
    /// See [`crate::MaterializationResponsibility::notify_resolved`].
    ///
    /// Rows take the flags they are resolved with, without weak and common: the definition has won.
    pub(crate) fn resolve(
        &mut self,
        claim: ClaimId,
        unit: &SymbolName,
        covered: &SymbolFlagsMap,
        addresses: &SymbolMap,
        effects: &mut Effects<P>,
    ) -> Result<(), ResolveError> {
        let Some(live) = self.definitions.live_claim(claim) else {
            return Err(ResolveError::TrackerDefunct { unit: unit.clone() });
        };
        let mut tally = Tally::default();
        let resolution = |&row: &RowId| self.resolution(row, claim, covered, addresses, &mut tally);
        // The usual unit has one symbol.
        let resolved: SmallVec<[Resolved; 1]> = live.rows().iter().filter_map(resolution).collect();
        if tally.disagrees || tally.rows != covered.len() || tally.given != addresses.len() {
            validate(unit, covered, addresses)?;
        }
        self.noted.act_for(Some(claim));
        self.noted.with(Kind::Resolved, claim, || resolved.len() as u64, Some(unit));
        self.observe(effects, || EventKind::Resolved { unit: unit.clone() });
        for Resolved { row, address, flags } in resolved {
            if let Some(queries) = self.definitions.resolve(row, address, flags) {
                let found = ExecutorSymbolDef::new(address, flags);
                self.tell_lodged(queries, RequiredState::Resolved, found, effects);
            }
        }
        Ok(())
    }

    /// The new state of a row, if it carries the claim.
    #[inline]
    fn resolution(
        &self,
        id: RowId,
        claim: ClaimId,
        covered: &SymbolFlagsMap,
        addresses: &SymbolMap,
        tally: &mut Tally,
    ) -> Option<Resolved> {
        let row = self.definitions.row(id).filter(|row| row.claim() == Some(claim))?;
        let promised = *covered.get(&row.name)?;
        let flags = promised.without_weak_and_common();
        tally.rows += 1;
        let has_no_address = promised.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        let address = match addresses.get(&row.name) {
            Some(definition) => {
                tally.given += 1;
                tally.disagrees |= has_no_address || definition.flags.without_weak_and_common() != flags;
                definition.address
            }
            None => {
                tally.disagrees |= !has_no_address;
                ExecutorAddr::NULL
            }
        };
        Some(Resolved { row: id, address, flags: promised.without_common() })
    }
}

/// Findings about the rows of a claim.
#[derive(Default)]
struct Tally {
    rows: usize,
    /// How many of them are given an address.
    given: usize,
    /// One has an address that should have none, or the other way round, or other flags.
    disagrees: bool,
}

/// A row and what it is resolved with.
struct Resolved {
    row: RowId,
    address: ExecutorAddr,
    flags: SymbolFlags,
}

/// Every symbol that has an address gets one, and nothing else does. Says what is wrong otherwise.
fn validate(unit: &SymbolName, covered: &SymbolFlagsMap, addresses: &SymbolMap) -> Result<(), ResolveError> {
    let mut given = 0;
    let mut missing = Vec::new();
    for (name, &promised) in covered {
        if promised.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY) {
            continue;
        }
        let Some(definition) = addresses.get(name) else {
            missing.push(name.clone());
            continue;
        };
        given += 1;
        if definition.flags.without_weak_and_common() != promised.without_weak_and_common() {
            let (unit, symbol) = (unit.clone(), name.clone());
            return Err(ResolveError::Flags { unit, symbol, promised, given: definition.flags });
        }
    }
    if !missing.is_empty() {
        return Err(ResolveError::Missing { unit: unit.clone(), symbols: missing });
    }
    if given == addresses.len() {
        return Ok(());
    }
    let has_address = |name: &SymbolName| {
        covered.get(name).is_some_and(|flags| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY))
    };
    let symbols = addresses.keys().filter(|name| !has_address(name)).cloned().collect();
    Err(ResolveError::Unexpected { unit: unit.clone(), symbols })
}
