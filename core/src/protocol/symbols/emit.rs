//! Emit: code and data are in place; symbols become Ready, or wait in the forest for what they need.
//!
//! An emission is accepted whole or not at all. A group whose dependencies are all Ready, or that has
//! none, never touches the forest unless another node already waits for it.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use uruk_recorder::Kind;

use crate::sync::weakened;
use crate::{DependenceGroup, Dependency, EmitError, EventKind, RequiredState, SymbolFlagsMap, SymbolName};

use crate::protocol::dependants::NeedyRows;
use crate::protocol::dependences::{NodeId, NodeState};
use crate::protocol::state::{
    Claim, Effects, Payload, RisingPriority, Row, RowState, Rows, SessionState, Waiters,
};
use crate::protocol::storage::{ClaimId, RowId};

/// A group whose names were found and whose dependencies are known to be possible.
struct Checked {
    rows: Rows,
    /// Those that are not Ready.
    dependencies: SmallVec<[RowId; 4]>,
}

/// Nodes of one group.
type Nodes = SmallVec<[NodeId; 4]>;

impl<P: Payload> SessionState<P> {
    /// See [`crate::ResolvedResponsibility::notify_emitted`].
    pub(crate) fn emit(
        &mut self,
        claim: ClaimId,
        unit: &SymbolName,
        covered: &SymbolFlagsMap,
        groups: &[DependenceGroup],
        effects: &mut Effects<P>,
    ) -> Result<(), EmitError> {
        let Some(&Claim { priority, .. }) = self.definitions.live_claim(claim) else {
            return Err(EmitError::TrackerDefunct { unit: unit.clone() });
        };
        self.noted.act_for(Some(claim));
        if groups.is_empty() {
            // The usual unit depends on nothing: nothing is to be checked, and nothing new can hang.
            self.noted.with(Kind::Emitted, claim, || covered.len() as u64, Some(unit));
            self.observe(effects, || EventKind::Emitted { unit: unit.clone() });
            self.emit_ungrouped(claim, effects);
            return Ok(());
        }
        // The usual group is the whole unit: no name is to be looked for.
        let is_whole = matches!(groups, [group] if covered.keys().eq(&group.symbols));
        if !is_whole {
            check_names(unit, covered, groups)?;
        }
        let mut checked: SmallVec<[Checked; 1]> = SmallVec::with_capacity(groups.len());
        for group in groups {
            let rows =
                if is_whole { self.definitions.rows_of_claim(claim) } else { self.rows_of(claim, group) };
            checked.push(self.check_group(rows, unit, group)?);
        }
        self.noted.with(Kind::Emitted, claim, || covered.len() as u64, Some(unit));
        self.observe(effects, || EventKind::Emitted { unit: unit.clone() });
        if self.dependants.are_kept() {
            self.note_dependants(claim, groups, &checked);
        }
        // Dependencies first: a claim they cause must find the rows as they are.
        let nodes: SmallVec<[Nodes; 1]> =
            checked.iter().map(|group| self.dependency_nodes(group, priority, effects)).collect();
        for (group, dependencies) in checked.iter().zip(&nodes) {
            self.emit_group(&group.rows, dependencies, priority, effects);
        }
        self.emit_ungrouped(claim, effects);
        Ok(())
    }

    fn rows_of(&self, claim: ClaimId, group: &DependenceGroup) -> Rows {
        group.symbols.iter().filter_map(|name| self.definitions.row_of_claim(claim, name)).collect()
    }

    /// The group's rows and unready dependencies, unless one of these makes the emission impossible.
    fn check_group(
        &mut self,
        rows: Rows,
        unit: &SymbolName,
        group: &DependenceGroup,
    ) -> Result<Checked, EmitError> {
        let mut dependencies = SmallVec::with_capacity(group.dependencies.len());
        for &Dependency { row: dependency, .. } in &group.dependencies {
            let Some(row) =
                self.definitions.row(dependency).filter(|row| !self.definitions.row_is_removing(row))
            else {
                if weakened("remove::emission_trusts_old_tokens") {
                    continue;
                }
                return Err(EmitError::DependencyRemoved {
                    unit: unit.clone(),
                    dependants: group.symbols.clone(),
                });
            };
            match row.state {
                RowState::Ready { .. } => {}
                RowState::Failed { .. } if !weakened("emit::trusts_its_dependencies") => {
                    return Err(EmitError::DependencyFailed {
                        unit: unit.clone(),
                        failure: self.failure_of(dependency),
                    });
                }
                _ => dependencies.push(dependency),
            }
        }
        Ok(Checked { rows, dependencies })
    }

    /// Notes the dependencies of the groups on dylibs that keep their dependants. Dependants in the same unit go with it anyway.
    #[inline(never)]
    fn note_dependants(&mut self, claim: ClaimId, groups: &[DependenceGroup], checked: &[Checked]) {
        let is_kept = |row: &RowId| {
            let keeps = |row: &Row| row.claim() != Some(claim) && self.dependants.keeps(row.dylib);
            self.definitions.row(*row).is_some_and(keeps) && !weakened("dependants::notes_nothing")
        };
        let noted = groups.iter().zip(checked).map(|(group, Checked { rows, .. })| {
            let needs = group.dependencies.iter().map(|needed| needed.row).filter(is_kept).collect();
            NeedyRows { rows, needs }
        });
        let noted: SmallVec<[NeedyRows<'_>; 1]> = noted.collect();
        self.dependants.note(&noted, &self.definitions.rows_of_claim(claim));
    }

    /// The forest's nodes of the group's dependencies, made where missing. Rows that were never searched
    /// are claimed: a dependence is demand.
    fn dependency_nodes(
        &mut self,
        group: &Checked,
        priority: RisingPriority,
        effects: &mut Effects<P>,
    ) -> Nodes {
        let mut nodes = Nodes::new();
        // Without a row left there is no dependant.
        if group.rows.is_empty() {
            return nodes;
        }
        for &dependency in &group.dependencies {
            let node = match self.node_of(dependency) {
                None => self.claimed_node_of(dependency, priority, effects),
                known => known,
            };
            self.raise(dependency, priority);
            if let Some(node) = node {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Claims a row that was never searched; a row that can have waiters has been claimed.
    #[inline(never)]
    fn claimed_node_of(
        &mut self,
        row: RowId,
        priority: RisingPriority,
        effects: &mut Effects<P>,
    ) -> Option<NodeId> {
        self.claim(row, Some(priority), effects);
        self.node_of(row)
    }

    /// The forest's node of a row that anybody can wait on.
    #[inline(always)]
    fn node_of(&mut self, row: RowId) -> Option<NodeId> {
        let waiting = self.definitions.waiting_mut(row)?;
        Some(*waiting.node.get_or_insert_with(|| self.forest.add(row)))
    }

    /// Emits `rows`, which depend on the same `dependencies`.
    fn emit_group(
        &mut self,
        rows: &[RowId],
        dependencies: &[NodeId],
        priority: RisingPriority,
        effects: &mut Effects<P>,
    ) {
        let waits = dependencies.iter().any(|&node| self.forest.state(node) != NodeState::Gone);
        let mut members = Nodes::new();
        for &row in rows {
            match self.definitions[row].waiting().and_then(|waiting| waiting.node) {
                Some(node) => members.push(node),
                // The group waits: each of its rows may come to be waited for, or removed, by itself.
                None if waits => members.push(self.forest.add(row)),
                None => {
                    self.make_ready(row, effects);
                    continue;
                }
            }
            self.definitions.emit(row, members.last().copied(), priority);
        }
        if !members.is_empty() {
            self.forest.emit(&members, dependencies);
            self.agenda.add();
        }
    }

    /// Ends the claim and emits its symbols that were in no group: they depend on nothing.
    fn emit_ungrouped(&mut self, claim: ClaimId, effects: &mut Effects<P>) {
        let Some(ended) = self.definitions.end_claim(claim, effects) else { return };
        for &row in ended.rows() {
            match self.definitions.row(row).map(|row| (row.claim(), row.waiting())) {
                // The usual symbol: no other has asked for it yet.
                Some((Some(of), Some(&Waiters { node: None, queries }))) if of == claim => {
                    self.look_ahead_in_query(queries);
                    self.make_ready(row, effects)
                }
                Some((Some(of), _)) if of == claim => self.emit_group(&[row], &[], ended.priority, effects),
                _ => {}
            }
        }
    }

    /// The row, and everything it needs, is in place.
    pub(crate) fn make_ready(&mut self, id: RowId, effects: &mut Effects<P>) {
        let Some((queries, found)) = self.definitions.make_ready(id) else { return };
        if !weakened("lodge::ready_tells_nobody") {
            self.tell_lodged(queries, RequiredState::Ready, found, effects);
        }
        self.definitions.end_spare(id, effects);
        self.observe_ready(id, effects);
    }

    pub(crate) fn observe_ready(&mut self, id: RowId, effects: &mut Effects<P>) {
        if uruk_recorder::is_on() {
            self.noted.act(Kind::Ready, id, Some(&self.definitions[id].name));
        }
        if self.events.is_observed() {
            let row = &self.definitions[id];
            let (dylib, symbol) = (self.definitions.dylib_name_of(row), row.name.clone());
            self.observe(effects, || EventKind::Ready { dylib, symbol });
        }
    }
}

/// Every name of a group is covered, and none is named twice.
fn check_names(
    unit: &SymbolName,
    covered: &SymbolFlagsMap,
    groups: &[DependenceGroup],
) -> Result<(), EmitError> {
    // The usual unit has one group of one symbol, which cannot be named twice.
    if let [DependenceGroup { symbols, .. }] = groups
        && let [name] = &symbols[..]
        && covered.contains_key(name)
    {
        return Ok(());
    }
    let mut seen = FxHashSet::default();
    let names = groups.iter().flat_map(|group| &group.symbols);
    let symbols: Vec<_> =
        names.filter(|name| !covered.contains_key(name) || !seen.insert(*name)).cloned().collect();
    match symbols.is_empty() {
        true => Ok(()),
        false => Err(EmitError::Unexpected { unit: unit.clone(), symbols }),
    }
}
