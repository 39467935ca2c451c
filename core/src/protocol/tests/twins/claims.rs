//! Operations on claims: units begin, or not, give addresses, emit, fail, and delegate.

use super::super::numbers::Numbers;
use super::step::Step;
use super::{Stage, Twin, pick};
use crate::ids::SessionTag;
use crate::protocol::deadlock::threads::Held;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::pending::{ClaimedUnit, PendingUnit};
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, FailureCause, SymbolFlags, SymbolFlagsMap,
    SymbolName,
};

impl Twin {
    /// An act of a claim's holder that is not blocked.
    pub(super) fn work(&mut self, step: &Step, effects: &mut Effects<Numbers>) {
        let (choice, needed) = match *step {
            Step::Begin(choice) => (choice, Some(Stage::Queued)),
            Step::Resolve(choice) | Step::Delegate { claim: choice, .. } => (choice, Some(Stage::Begun)),
            Step::Emit { claim, .. } => (claim, Some(Stage::Resolved)),
            Step::Fail(choice) => (choice, None),
            _ => return,
        };
        let fits = |(claimed, stage): &(ClaimedUnit<u32>, Stage)| {
            needed.is_none_or(|needed| needed == *stage) && !self.is_held(Held::Claim(claimed.claim))
        };
        let fitting: Vec<_> = (0..self.claims.len()).filter(|&index| fits(&self.claims[index])).collect();
        let Some(index) = pick(fitting.len(), choice).map(|choice| fitting[choice]) else { return };
        match step {
            Step::Begin(_) => self.begin(index, effects),
            Step::Resolve(_) => self.resolve(index, effects),
            Step::Emit { needs, .. } => self.emit(index, needs, effects),
            Step::Delegate { name, .. } => self.delegate(index, *name),
            _ => {
                let (claimed, _) = self.claims.remove(index);
                self.state.fail(claimed.claim, FailureCause::Abandoned, effects);
            }
        }
    }

    fn begin(&mut self, index: usize, effects: &mut Effects<Numbers>) {
        let (claimed, _) = self.claims.remove(index);
        let begun = self.state.begin(claimed, None, effects);
        self.claims.extend(begun.map(|claimed| (claimed, Stage::Begun)));
    }

    fn resolve(&mut self, index: usize, effects: &mut Effects<Numbers>) {
        let (claimed, stage) = &mut self.claims[index];
        let has_address =
            |flags: &SymbolFlags| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        let at = |(name, flags): (&SymbolName, &SymbolFlags)| {
            (name.clone(), ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), *flags))
        };
        let addresses =
            claimed.pending.symbols.iter().filter(|(_, flags)| has_address(flags)).map(at).collect();
        let unit = &self.shared.unit_name;
        let resolved = self.state.resolve(claimed.claim, unit, &claimed.pending.symbols, &addresses, effects);
        if resolved.is_ok() {
            *stage = Stage::Resolved;
        }
        self.see(&resolved);
    }

    fn emit(&mut self, index: usize, needs: &[(usize, usize)], effects: &mut Effects<Numbers>) {
        let (claimed, _) = &self.claims[index];
        let token = |&(dylib, name): &(usize, usize)| {
            let row = self.state.definitions.find(self.dylibs[dylib], &self.shared.names[name])?;
            Some(Dependency { row, session: SessionTag::default() })
        };
        let group = DependenceGroup {
            symbols: claimed.pending.symbols.keys().cloned().collect(),
            dependencies: needs.iter().filter_map(token).collect(),
        };
        let unit = &self.shared.unit_name;
        let emitted = self.state.emit(claimed.claim, unit, &claimed.pending.symbols, &[group], effects);
        if emitted.is_ok() {
            self.claims.remove(index);
        }
        self.see(&emitted);
    }

    fn delegate(&mut self, index: usize, name: usize) {
        let name = self.shared.names[name].clone();
        let (claimed, _) = &mut self.claims[index];
        if claimed.pending.symbols.len() < 2 {
            return;
        }
        let Some((_, flags)) = claimed.pending.symbols.remove_entry(&name) else { return };
        let Some(claim) = self.state.definitions.delegate(claimed.claim, std::slice::from_ref(&name)) else {
            return;
        };
        let symbols: SymbolFlagsMap = [(name, flags)].into_iter().collect();
        let (dylib, unit_name) =
            ((claimed.pending.dylib, claimed.pending.dylib_name.clone()), claimed.pending.name.clone());
        let own = claimed.pending.own_priority;
        let part = PendingUnit::new(0, unit_name, dylib, symbols, own, Default::default());
        let (losses, ticketed) = (claimed.losses, None);
        self.claims.push((ClaimedUnit { pending: Box::new(part), claim, losses, ticketed }, Stage::Begun));
    }
}
