//! Resolve: addresses are recorded, and lookups that wanted no more than that are answered.

use smallvec::SmallVec;

use crate::{
    EventKind, ExecutorAddr, RequiredState, ResolveError, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName,
};

use super::effects::Effects;
use super::ids::{ClaimId, RowId};
use super::row::RowState;
use super::{Payload, SessionState};
use crate::sync::weakened;

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
        if self.live_claim(claim).is_none() {
            return Err(ResolveError::TrackerDefunct { unit: unit.clone() });
        }
        let (resolved, as_promised) = self.match_addresses(claim, covered, addresses);
        if !as_promised {
            validate(unit, covered, addresses)?;
        }
        self.observe(effects, || EventKind::Resolved { unit: unit.clone() });
        for Resolved { row, address, flags } in resolved {
            let row_state = &mut self.rows[row];
            let RowState::Materializing { waiting, .. } = row_state.state else { continue };
            row_state.flags = flags;
            row_state.advance(RowState::Resolved { claim, address, waiting });
            // Mostly nobody does, and who waits for more need not be looked at.
            if row_state.is_wanted_resolved || weakened("lodge::addresses_answer_everybody") {
                self.satisfy(row, waiting.queries, RequiredState::Resolved, effects);
            }
        }
        Ok(())
    }

    /// What becomes of each row of the claim, and whether `addresses` are certainly what was promised.
    fn match_addresses(
        &self,
        claim: ClaimId,
        covered: &SymbolFlagsMap,
        addresses: &SymbolMap,
    ) -> (SmallVec<[Resolved; 2]>, bool) {
        let rows = &self.claims[claim].rows;
        let (mut resolved, mut given, mut flags_agree) = (SmallVec::with_capacity(rows.len()), 0, true);
        for &id in rows {
            let Some(row) = self.rows.get(id).filter(|row| row.claim() == Some(claim)) else { continue };
            let Some(promised) = covered.get(&row.name).copied() else { continue };
            let flags = promised.without_weak_and_common();
            let address = match addresses.get(&row.name) {
                Some(definition) => {
                    given += 1;
                    flags_agree &= definition.flags.without_weak_and_common() == flags;
                    flags_agree &= !promised.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
                    definition.address
                }
                None => {
                    flags_agree &= promised.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
                    ExecutorAddr::NULL
                }
            };
            resolved.push(Resolved { row: id, address, flags });
        }
        let all = resolved.len() == covered.len() && given == addresses.len();
        (resolved, all && flags_agree)
    }
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
