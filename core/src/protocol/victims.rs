//! Who is told of a deadlock, and when: states built step by step, without threads.

use super::SessionState;
use super::effects::{Completed, Effects};
use super::ids::{ClaimId, DylibId, QueryId, TrackerId, WaitId};
use super::lookup::Search;
use super::numbers::{Numbers, definition, exported, search, with_main};
use super::waits_for::Holdings;
use crate::session::SessionTag;
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, LookupError, LookupSet, RequiredState,
    SymbolFlags, SymbolFlagsMap, SymbolName, SymbolStringPool,
};

struct Scene {
    state: SessionState<Numbers>,
    pool: SymbolStringPool,
    dylib: DylibId,
    effects: Effects<Numbers>,
}

impl Scene {
    fn new() -> Self {
        let (mut state, pool, dylib) = with_main(false);
        state.agenda.slice_steps = 1;
        Self { state, pool, dylib, effects: Effects::default() }
    }

    fn name(&self, name: &str) -> SymbolName {
        self.pool.intern(name)
    }

    fn flags(&self, name: &str) -> SymbolFlagsMap {
        exported([&self.name(name)])
    }

    fn define(&mut self, tracker: Option<TrackerId>, name: &str) {
        let definition = definition(&self.name(name), self.flags(name));
        self.state.define(self.dylib, tracker, definition, 0, &mut self.effects).unwrap();
    }

    /// Defines a symbol and claims it: it is materializing.
    fn claim(&mut self, tracker: Option<TrackerId>, name: &str) -> ClaimId {
        self.define(tracker, name);
        let query = self.look_up(0, &[name]).expect("nobody has materialized it");
        self.state.withdraw(query, &mut self.effects);
        self.effects.claimed.pop().expect("the unit was claimed").claim
    }

    fn search(&self, names: &[&str]) -> Search {
        let symbols = LookupSet::required(names.iter().map(|name| self.name(name)));
        search(self.dylib, symbols, RequiredState::Ready)
    }

    fn look_up(&mut self, handler: u32, names: &[&str]) -> Option<QueryId> {
        let search = self.search(names);
        self.state.lookup(search, handler, |_| "main".into(), &mut self.effects)
    }

    /// A thread that holds the claim blocks in a lookup of `names`.
    fn block(&mut self, handler: u32, holds: ClaimId, names: &[&str], ends_by_itself: bool) -> WaitId {
        let query = self.look_up(handler, names).expect("it waits");
        let holdings = Holdings { claims: vec![holds], ends_by_itself, ..Holdings::default() };
        self.state.begin_wait(query, holdings, &mut self.effects).expect("it lives")
    }

    /// The source of an alias is looked up.
    fn seek(&mut self, handler: u32, alias: &str, source: &str) {
        let alias = self.state.find(self.dylib, &self.name(alias));
        let search = Search { alias, required_state: RequiredState::Resolved, ..self.search(&[source]) };
        self.state.lookup(search, handler, |_| "main".into(), &mut self.effects).expect("it waits");
    }

    fn resolve(&mut self, claim: ClaimId, name: &str) {
        let (unit, symbols) = (self.name(name), self.flags(name));
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = [(self.name(name), address)].into_iter().collect();
        self.state.resolve(claim, &unit, &symbols, &addresses, &mut self.effects).unwrap();
    }

    fn emit(&mut self, claim: ClaimId, name: &str, needs: &[&str]) {
        self.resolve(claim, name);
        let (unit, symbols) = (self.name(name), self.flags(name));
        let rows = needs.iter().map(|needed| self.state.find(self.dylib, &self.name(needed)).unwrap());
        let dependencies = rows.map(|row| Dependency { row, session: SessionTag::default() }).collect();
        let group = DependenceGroup { symbols: vec![self.name(name)], dependencies };
        self.state.emit(claim, &unit, &symbols, &[group], &mut self.effects).unwrap();
    }

    /// Which lookups have ended with an error since, and whether that was a deadlock.
    fn told(&mut self) -> Vec<(u32, bool)> {
        let failed = |Completed { handler, outcome, .. }| Some((handler, outcome.err()?));
        let failed = self.effects.completed.drain(..).filter_map(failed);
        failed.map(|(handler, error)| (handler, matches!(error, LookupError::WouldDeadlock { .. }))).collect()
    }

    fn settle(&mut self) {
        self.state.settle_all(&mut self.effects);
        self.state.check();
    }
}

#[test]
fn the_lookup_that_moves_on_into_a_cycle_is_told_though_another_is_newer() {
    let mut scene = Scene::new();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    let dylib = scene.dylib;
    scene.state.add_generator(dylib, "generator".into(), 0, &mut scene.effects).unwrap();
    scene.block(1, a, &["b", "x"], true);
    scene.block(2, b, &["a"], false);
    assert_eq!(scene.told(), []);
    let asked = scene.effects.more().generations.pop().expect("x is not defined");
    scene.define(None, "x");
    scene.state.generated(asked.id, asked.query, Ok(()), &mut scene.effects);
    assert_eq!(scene.told(), [(1, true)]);
    scene.settle();
}

#[test]
fn nobody_is_told_of_a_cycle_that_a_removal_is_about_to_end() {
    let mut scene = Scene::new();
    let tracker = scene.state.create_tracker(scene.dylib);
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    scene.claim(Some(tracker), "gone");
    for index in 0..8 {
        scene.define(Some(tracker), &format!("gone too {index}"));
    }
    scene.emit(r, "r", &["gone", "b"]);
    scene.block(1, a, &["r"], false);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    assert!(scene.state.is_falling(), "more than one slice");
    scene.block(2, b, &["a"], false);
    assert_eq!(scene.told(), []);
    scene.settle();
    assert_eq!(scene.told(), [(1, false)]);
}

#[test]
fn a_cycle_that_appears_during_a_removal_is_told_after_it() {
    let mut scene = Scene::new();
    let tracker = scene.state.create_tracker(scene.dylib);
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    for index in 0..8 {
        scene.define(Some(tracker), &format!("gone {index}"));
    }
    scene.block(1, a, &["r"], false);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    scene.block(2, b, &["a"], false);
    assert!(scene.state.is_falling(), "more than one slice");
    scene.emit(r, "r", &["b"]);
    scene.settle();
    assert_eq!(scene.told(), [(2, true)]);
}

/// Of a group that is emitted during a removal, the first symbol may be removed before the look: the others wait as before.
#[test]
fn a_cycle_that_appears_during_a_removal_is_told_though_the_first_of_its_group_is_removed_too() {
    let mut scene = Scene::new();
    let tracker = scene.state.create_tracker(scene.dylib);
    let (a, b, c) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "c"));
    let (r1, r2) = (scene.name("r1"), scene.name("r2"));
    let both = exported([&r1, &r2]);
    let pair = definition(&r1, both.clone());
    scene.state.define(scene.dylib, None, pair, 0, &mut scene.effects).unwrap();
    for index in 0..32 {
        scene.define(Some(tracker), &format!("gone {index}"));
    }
    scene.block(1, a, &["r2"], false);
    scene.block(3, c, &["r1"], false);
    let r = scene.effects.claimed.pop().expect("the unit was claimed").claim;
    scene.block(2, b, &["a"], false);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
    let addresses = [(r1.clone(), address), (r2.clone(), address)].into_iter().collect();
    scene.state.resolve(r, &r1, &both, &addresses, &mut scene.effects).unwrap();
    let row = scene.state.find(scene.dylib, &scene.name("b")).unwrap();
    let dependencies = vec![Dependency { row, session: SessionTag::default() }];
    let group = DependenceGroup { symbols: vec![r1.clone(), r2], dependencies };
    scene.state.emit(r, &r1, &both, &[group], &mut scene.effects).unwrap();
    assert!(scene.state.is_falling(), "more than one slice");
    scene.state.remove_names(scene.dylib, &[r1], || "main".into(), &mut scene.effects).unwrap();
    assert!(scene.state.is_falling(), "more than one slice");
    scene.state.settle_all(&mut scene.effects);
    assert_eq!(scene.told(), [(3, false), (2, true)]);
    scene.settle();
}

#[test]
fn aliases_that_wait_at_a_generator_wait_for_whom_it_waits() {
    let mut scene = Scene::new();
    let (alias, dylib) = (scene.claim(None, "alias"), scene.dylib);
    scene.state.add_generator(dylib, "generator".into(), 0, &mut scene.effects).unwrap();
    let row = scene.state.find(dylib, &scene.name("alias")).unwrap();
    let seek = |scene: &mut Scene| {
        let search = Search { alias: Some(row), ..scene.search(&["x"]) };
        scene.state.lookup(search, 1, |_| "main".into(), &mut scene.effects).expect("it waits")
    };
    let query = seek(&mut scene);
    let lookup = scene.look_up(2, &["alias"]).expect("it waits");
    let holdings = Holdings { requests: vec![query], ..Holdings::default() };
    scene.state.begin_wait(lookup, holdings, &mut scene.effects);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
    let asked = scene.effects.more().generations.pop().expect("x is not defined");
    scene.state.generated(asked.id, asked.query, Err(crate::failure::shared_error("no")), &mut scene.effects);
    scene.state.fail(alias, crate::FailureCause::Abandoned, &mut scene.effects);
    scene.settle();
    assert_eq!(scene.state.aliases.len(), (0, 0));
}

#[test]
fn aliases_that_come_to_a_generator_later_wait_for_whom_it_waits() {
    let mut scene = Scene::new();
    let (a, dylib) = (scene.claim(None, "a"), scene.dylib);
    scene.claim(None, "alias");
    scene.state.add_generator(dylib, "generator".into(), 0, &mut scene.effects).unwrap();
    scene.look_up(1, &["y"]).expect("it waits");
    let asked = scene.effects.more().generations.pop().expect("y is not defined");
    // One thread serves the request for y and needs the alias; another holds a.
    let lookup = scene.look_up(2, &["alias"]).expect("it waits");
    let holdings = Holdings { requests: vec![asked.query], ..Holdings::default() };
    scene.state.begin_wait(lookup, holdings, &mut scene.effects);
    scene.block(3, a, &["alias"], false);
    assert_eq!(scene.told(), []);
    let row = scene.state.find(dylib, &scene.name("alias")).unwrap();
    let search = Search { alias: Some(row), ..scene.search(&["x"]) };
    scene.state.lookup(search, 4, |_| "main".into(), &mut scene.effects).expect("it queues up");
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

/// Each alias of a unit is finished by itself: whoever provides the source of one may need the alias beside it.
#[test]
fn an_alias_waits_for_its_source_and_not_for_those_of_others_beside_it() {
    let mut scene = Scene::new();
    for alias in ["alias", "beside"] {
        scene.claim(None, alias);
    }
    let (first, last) = (scene.claim(None, "first"), scene.claim(None, "last"));
    scene.seek(1, "alias", "first");
    scene.seek(2, "beside", "last");
    scene.block(3, last, &["alias"], false);
    assert_eq!(scene.told(), []);
    scene.block(4, first, &["alias"], false);
    assert_eq!(scene.told(), [(4, true)]);
    scene.settle();
}

#[test]
fn a_cycle_past_an_alias_of_an_alias_is_told() {
    let mut scene = Scene::new();
    for name in ["alias", "inner"] {
        scene.claim(None, name);
    }
    let last = scene.claim(None, "last");
    scene.seek(1, "alias", "inner");
    scene.block(2, last, &["alias"], false);
    assert_eq!(scene.told(), []);
    scene.seek(3, "inner", "last");
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

#[test]
fn a_chain_of_aliases_is_followed_only_where_it_may_lead_back() {
    const LENGTH: usize = 20_000;
    let mut scene = Scene::new();
    let name = |index: usize| format!("a{index}");
    for index in 0..=LENGTH {
        scene.claim(None, &name(index));
    }
    let row = |scene: &Scene, index: usize| scene.state.find(scene.dylib, &scene.name(&name(index))).unwrap();
    let point = |scene: &mut Scene, alias: usize, source: usize| {
        let search = Search { alias: Some(row(scene, alias)), ..scene.search(&[&name(source)]) };
        scene.state.lookup(search, 0, |_| "main".into(), &mut scene.effects)
    };
    for index in 0..LENGTH {
        point(&mut scene, index + 1, index).expect("it waits");
    }
    assert!(point(&mut scene, 0, LENGTH).is_none(), "a cycle");
    let [Completed { outcome: Err(LookupError::AliasCycle { cycle }), .. }] = &scene.effects.completed[..]
    else {
        panic!("only the last lookup has failed")
    };
    assert_eq!(cycle.len(), LENGTH + 2);
}

/// A blocked thread needs the aliases; another blocked thread holds the source of one of them.
#[test]
fn lookups_of_many_aliases_walk_a_few_times_each() {
    let steps = |many: usize| {
        let mut scene = Scene::new();
        let (a, s) = (scene.claim(None, "a"), scene.claim(None, "s0"));
        scene.claim(None, "z");
        let pairs: Vec<_> = (0..many).map(|index| (format!("a{index}"), format!("s{index}"))).collect();
        for (alias, source) in &pairs {
            scene.claim(None, alias);
            if source != "s0" {
                scene.claim(None, source);
            }
        }
        let wanted: Vec<_> = pairs.iter().map(|(alias, _)| alias.as_str()).collect();
        scene.block(1, s, &["z"], false);
        scene.block(2, a, &wanted, false);
        pairs.iter().for_each(|(alias, source)| scene.seek(3, alias, source));
        // All of it counts as one hold of the lock.
        scene.state.finish_transaction(&mut Effects::default());
        assert_eq!(scene.told(), []);
        scene.state.steps_max()
    };
    let few = steps(100);
    let many = steps(800);
    assert!(many < 3 * 8 * few, "{few} steps for 100 aliases, {many} for 800");
}

/// A blocked thread needs each of the groups; all of them need a chain that leads to another blocked thread.
#[test]
fn an_emission_of_many_groups_walks_a_few_times() {
    const CHAIN: usize = 100;
    let steps = |many: usize| {
        let mut scene = Scene::new();
        let (a, last) = (scene.claim(None, "a"), scene.claim(None, "c0"));
        scene.claim(None, "z");
        scene.block(1, last, &["z"], false);
        for index in 1..CHAIN {
            let link = scene.claim(None, &format!("c{index}"));
            scene.emit(link, &format!("c{index}"), &[&format!("c{}", index - 1)]);
            scene.state.settle_all(&mut scene.effects);
        }
        let names: Vec<_> = (0..many).map(|index| format!("g{index}")).collect();
        let symbols: Vec<_> = names.iter().map(|name| scene.name(name)).collect();
        let all = exported(&symbols);
        let unit = definition(&symbols[0], all.clone());
        scene.state.define(scene.dylib, None, unit, 0, &mut scene.effects).unwrap();
        let wanted: Vec<_> = names.iter().map(String::as_str).collect();
        scene.block(2, a, &wanted, false);
        let g = scene.effects.claimed.pop().expect("the unit was claimed").claim;
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = symbols.iter().map(|name| (name.clone(), address)).collect();
        scene.state.resolve(g, &symbols[0], &all, &addresses, &mut scene.effects).unwrap();
        let row = scene.state.find(scene.dylib, &scene.name(&format!("c{}", CHAIN - 1))).unwrap();
        let on_the_chain = || vec![Dependency { row, session: SessionTag::default() }];
        let group =
            |name: &SymbolName| DependenceGroup { symbols: vec![name.clone()], dependencies: on_the_chain() };
        let groups: Vec<_> = symbols.iter().map(group).collect();
        scene.state.emit(g, &symbols[0], &all, &groups, &mut scene.effects).unwrap();
        let mut effects = Effects::default();
        scene.state.finish_transaction(&mut effects);
        assert_eq!(scene.told(), []);
        scene.state.steps_max()
    };
    let few = steps(10);
    let many = steps(160);
    assert!(many < 10 * (few + 160), "{few} steps for 10 groups, {many} for 160");
}

/// What was known to lead to no blocked thread leads to one by an emission whose look is postponed, like that of the lookup.
#[test]
fn the_lookup_that_moves_on_into_a_cycle_during_a_removal_is_told_though_another_is_newer() {
    let mut scene = Scene::new();
    let (tracker, dylib) = (scene.state.create_tracker(scene.dylib), scene.dylib);
    let (a, b, c) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "c"));
    let r = scene.claim(None, "r");
    for index in 0..32 {
        scene.define(Some(tracker), &format!("gone {index}"));
    }
    scene.state.add_generator(dylib, "generator".into(), 0, &mut scene.effects).unwrap();
    scene.block(1, a, &["r", "x"], false);
    let asked = scene.effects.more().generations.pop().expect("x is not defined");
    scene.block(2, b, &["a"], false);
    scene.block(3, c, &["r"], false);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    scene.emit(r, "r", &["b"]);
    scene.define(None, "x");
    scene.state.generated(asked.id, asked.query, Ok(()), &mut scene.effects);
    assert!(scene.state.is_falling(), "more than one slice");
    assert_eq!(scene.told(), []);
    scene.settle();
    assert_eq!(scene.told(), [(1, true)]);
}
