//! The cost of many units that wait for one another: rises come in slices, each unit rises three times at most, and a loss costs
//! nothing.

use super::History;
use super::step::NAMES;
use crate::ids::QueryId;
use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::lookups::query::Asker;
use crate::protocol::state::lookups::query::Search;
use crate::protocol::tests::numbers::{Numbers, definition, exported};
use crate::{SymbolName, SymbolStringPool, TaskPriority};

/// Units `0..count` of one symbol each. Each asks for the next on its own behalf, and the first is not asked for.
fn chain(count: usize) -> (History, Vec<SymbolName>) {
    let mut history = History::new(&[3; NAMES], true, SLICE_STEPS);
    let mut effects = Effects::default();
    let pool = SymbolStringPool::new();
    let names: Vec<_> = (0..count).map(|index| pool.intern(&format!("c{index}"))).collect();
    for name in &names {
        let definition = definition(name, exported([name]));
        history.state.define(history.dylib, None, definition, 1, &mut effects).expect("new");
    }
    history.ask(&names[0], |search| search.priority = Some(TaskPriority::Idle), &mut effects);
    for (index, next) in names.iter().enumerate().skip(1) {
        let claim = effects.claimed[index - 1].claim;
        let asker = Asker { claim, priority: TaskPriority::Idle };
        history.ask(next, |search| search.asked_by = Some(asker), &mut effects);
    }
    history.state.settle_all(&mut effects);
    (history, names)
}

impl History {
    fn ask(
        &mut self,
        name: &SymbolName,
        change: impl FnOnce(&mut Search),
        effects: &mut Effects<Numbers>,
    ) -> QueryId {
        self.made += 1;
        let mut search = self.search(vec![name.clone()], true);
        change(&mut search);
        self.state.lookup(search, self.made, |_| "main".into(), effects).expect("it waits")
    }

    fn priority_named(&self, name: &SymbolName) -> TaskPriority {
        let row = self.state.definitions.find(self.dylib, name).expect("it is defined");
        self.state.priority_of(row).expect("it was claimed").get()
    }
}

/// Does what a transaction has left to do; gives how many slices that took.
fn slices_of(history: &mut History, effects: &mut Effects<Numbers>) -> usize {
    let Some(attendance) = history.state.finish_transaction(effects) else { return 0 };
    let mut slices = 1;
    while history.state.slice(attendance, effects) {
        slices += 1;
    }
    slices
}

#[test]
fn a_long_chain_rises_in_slices() {
    const COUNT: usize = 50_000;
    let (mut history, names) = chain(COUNT);
    let last = &names[COUNT - 1];
    assert_eq!(history.priority_named(last), TaskPriority::Idle);
    let mut effects = Effects::default();
    let demanded = |search: &mut Search| search.priority = Some(TaskPriority::Demanded);
    let query = history.ask(&names[0], demanded, &mut effects);
    let attendance =
        history.state.finish_transaction(&mut effects).expect("somebody comes back for the rest");
    assert_eq!(history.priority_named(last), TaskPriority::Idle);
    while history.state.slice(attendance, &mut effects) {}
    assert_eq!(history.priority_named(last), TaskPriority::Demanded);
    assert_eq!(effects.more().raised.len(), COUNT);
    history.state.withdraw(query, &mut effects);
    assert_eq!(slices_of(&mut history, &mut effects), 0, "nothing sinks");
    assert_eq!(history.priority_named(last), TaskPriority::Demanded);
    let longest = history.state.steps_max();
    assert!(longest <= SLICE_STEPS + 10, "{longest} steps in one hold");
}

/// However many lookups come and go: their number times the length of the chain would be ten times as many slices.
#[test]
fn a_long_chain_rises_as_often_as_there_are_priorities_above_it() {
    const COUNT: usize = 20_000;
    let (mut history, names) = chain(COUNT);
    let (mut effects, mut slices) = (Effects::default(), 0);
    for priority in [TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded] {
        for _ in 0..10 {
            let query = history.ask(&names[0], |search| search.priority = Some(priority), &mut effects);
            slices += slices_of(&mut history, &mut effects);
            history.state.withdraw(query, &mut effects);
            slices += slices_of(&mut history, &mut effects);
            assert_eq!(history.priority_named(&names[COUNT - 1]), priority);
        }
    }
    // Of each unit: the row, which raises the claim, with one query; and the query, with one row.
    assert!(slices <= 3 * (4 * COUNT).div_ceil(SLICE_STEPS) + 3, "{slices} slices");
}

#[test]
fn a_lookup_given_up_among_many_costs_no_look_at_any_of_them() {
    let mut history = History::new(&[3; NAMES], true, SLICE_STEPS);
    let mut effects = Effects::default();
    let name = history.names[0].clone();
    let at = |priority| move |search: &mut Search| search.priority = Some(priority);
    let demanded: Vec<_> =
        (0..100).map(|_| history.ask(&name, at(TaskPriority::Demanded), &mut effects)).collect();
    for _ in 0..20_000 {
        history.ask(&name, at(TaskPriority::Idle), &mut effects);
    }
    history.state.settle_all(&mut effects);
    // Work that is not cut into slices is counted whole.
    history.state.agenda.set_slice_steps(usize::MAX);
    for query in demanded {
        history.state.withdraw(query, &mut effects);
        assert!(!history.state.has_work());
        assert_eq!(history.priority_named(&name), TaskPriority::Demanded);
    }
    let longest = history.state.steps_max();
    assert!(longest <= SLICE_STEPS, "{longest} steps in one hold");
}
