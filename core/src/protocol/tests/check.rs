//! Each check refuses a state that breaks what it checks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ids::{GeneratorId, QueryId};
use crate::protocol::deadlock::threads::Held;
use crate::protocol::deadlock::threads::Holdings;
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::RowNotice;
use crate::protocol::state::definitions::row::{RowState, Waiters};
use crate::protocol::state::effects::Effects;
use crate::protocol::state::failures::FailedRow;
use crate::protocol::state::lookups::query::Phase;
use crate::protocol::state::pending::{ClaimedUnit, PendingUnit};
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::state::stage::Shutdown;
use crate::protocol::symbols::define::Definition;
use crate::protocol::tests::numbers::{Numbers, definition, exported};
use crate::protocol::tests::scene::Scene;
use crate::task::serial_queue::SerialQueueId;
use crate::{ExecutorAddr, FailureCause, JitDylibLookupFlags, SymbolFlags, TaskPriority};

impl Scene {
    fn defines(&mut self, name: &str) {
        let number = self.state.definitions.counts().rows as u64;
        let name = self.name(name);
        let definition = Definition {
            number: Some(number),
            initializer: Some(name.clone()),
            ..definition(&name, exported([&name]))
        };
        self.state.define(self.dylib, None, definition, 0, &mut self.effects).unwrap();
    }

    fn asks_for(&mut self, name: &str) -> QueryId {
        self.look_up(0, &[name]).expect("it waits")
    }

    /// Defines a symbol for which a query waits; it is materializing.
    fn has_claimed(&mut self, name: &str) -> (ClaimedUnit<u32>, QueryId) {
        self.defines(name);
        let query = self.asks_for(name);
        (self.effects.claimed.pop().expect("it was claimed"), query)
    }

    fn ready(name: &str) -> Self {
        let mut scene = Self::new();
        let (claimed, _) = scene.has_claimed(name);
        scene.emit(claimed.claim, name, &[]);
        scene.state.settle_all(&mut scene.effects);
        scene
    }

    /// `a` is emitted and waits for `b`, which materializes.
    fn waiting() -> Self {
        let mut scene = Self::new();
        let (claimed, _) = scene.has_claimed("a");
        scene.defines("b");
        scene.emit(claimed.claim, "a", &["b"]);
        scene.state.settle_all(&mut scene.effects);
        scene
    }

    fn failed(name: &str) -> Self {
        let mut scene = Self::new();
        let (claimed, _) = scene.has_claimed(name);
        scene.state.fail(claimed.claim, FailureCause::Abandoned, &mut scene.effects);
        scene
    }

    /// A generator serves one lookup, and another stands in its queue.
    fn generating() -> (Self, GeneratorId, [QueryId; 2]) {
        let mut scene = Self::new();
        let generator = scene.state.add_generator(scene.dylib, "busy".into(), 0, &mut scene.effects);
        let queries = ["a", "b"].map(|name| scene.asks_for(name));
        (scene, generator.expect("the dylib is there"), queries)
    }

    /// Breaks the state, which was as it should be, and sees that a check says so.
    fn refuses(mut self, because: &str, corrupt: impl FnOnce(&mut SessionState<Numbers>)) {
        self.state.check();
        corrupt(&mut self.state);
        let refused = catch_unwind(AssertUnwindSafe(|| self.state.check()));
        let message =
            *refused.expect_err("nobody has noticed").downcast::<String>().unwrap_or_else(|other| {
                Box::new((*other.downcast::<&str>().expect("a panic has a message")).to_owned())
            });
        assert!(message.contains(because), "noticed for another reason: {message}");
    }
}

#[test]
fn a_table_that_names_what_is_gone() {
    let scene = Scene::new();
    scene.refuses("a dylib is found by its name", |state| state.definitions.parts().dylib_names.clear());
    let mut scene = Scene::new();
    let (dylib, other) = (scene.dylib, scene.state.create_dylib("other".into()).unwrap());
    scene.state.remove_dylib(other, &mut scene.effects);
    scene.refuses("links against what was removed", |state| {
        state.definitions.parts().dylibs[dylib]
            .link_order
            .push((other, JitDylibLookupFlags::MatchAllSymbols));
    });
}

#[test]
fn a_unit_that_does_not_know_its_rows() {
    let mut scene = Scene::new();
    scene.defines("a");
    let name = scene.name("a");
    scene.refuses("a unit knows the rows that hold it", |state| {
        let (unit, _) = state.definitions.parts().units.iter().next().expect("it waits");
        state.definitions.parts().units[unit].symbols.remove(&name);
    });
}

/// Started, and waiting to be started again.
#[test]
fn a_unit_that_no_row_holds() {
    let mut scene = Scene::new();
    scene.defines("a");
    scene.refuses("a unit waits in at least one row", |state| {
        let waiting = state
            .definitions
            .parts()
            .units
            .iter()
            .next()
            .map(|(_, unit)| unit.symbols.clone())
            .expect("it waits");
        let name = waiting.keys().next().expect("it has a symbol").clone();
        let home = state
            .definitions
            .dylibs()
            .next()
            .map(|(id, dylib)| (id, dylib.name.clone()))
            .expect("it has one");
        let priority = TaskPriority::Demanded;
        let unit = PendingUnit::new(1, name, home, waiting, priority, Default::default());
        state.definitions.parts().units.insert(Box::new(unit));
    });
}

#[test]
fn a_claim_that_counts_wrong() {
    let mut scene = Scene::new();
    let (claimed, _) = scene.has_claimed("a");
    scene.refuses("a claim counts its rows", |state| {
        state.definitions.parts().claims[claimed.claim].break_count()
    });
}

#[test]
fn a_row_whose_claim_is_gone() {
    let mut scene = Scene::new();
    let (claimed, _) = scene.has_claimed("a");
    scene.refuses("has lost its claim", |state| {
        drop(state.definitions.end_claim(claimed.claim, &mut Vec::new()))
    });
}

#[test]
fn a_claim_elsewhere_than_its_rows() {
    let mut scene = Scene::new();
    let (claimed, _) = scene.has_claimed("a");
    let tracker = scene.state.definitions.create_tracker(scene.dylib);
    scene.refuses("a claim is where its rows are", |state| {
        state.definitions.parts().claims[claimed.claim].break_tracker(tracker)
    });
}

#[test]
fn a_tracker_that_counts_wrong() {
    let mut scene = Scene::new();
    scene.defines("a");
    let tracker = scene.state.definitions.default_tracker(scene.dylib);
    scene.refuses("a tracker counts its rows", |state| state.definitions.parts().trackers[tracker].rows += 1);
}

#[test]
fn a_dylib_that_counts_wrong_for_observers() {
    let mut scene = Scene::new();
    scene.state.events.begin_to_observe();
    *scene.state.definitions.parts().is_observed = true;
    scene.defines("a");
    let dylib = scene.dylib;
    scene.refuses("a dylib counts its rows", |state| state.definitions.parts().dylibs[dylib].rows += 1);
}

#[test]
fn a_tracker_that_was_removed_and_is_there() {
    let scene = Scene::new();
    let tracker = scene.state.definitions.default_tracker(scene.dylib);
    scene.refuses("was removed and is still there", |state| {
        state.definitions.parts().trackers[tracker].era += 1;
    });
}

#[test]
fn an_initializer_that_is_noted_twice() {
    let mut scene = Scene::new();
    scene.defines("a");
    let (dylib, name) = (scene.dylib, scene.name("a"));
    scene.refuses("each initializer is noted once", |state| {
        state.definitions.note_initializer(dylib, u64::MAX, Some(&name), &mut Effects::default());
    });
}

#[test]
fn a_query_that_has_everything_and_is_there() {
    let mut scene = Scene::new();
    let (_, query) = scene.has_claimed("a");
    scene.refuses("counts what it waits for", |state| {
        if let Phase::Lodged(lodged) = &mut state.lookups.queries_mut()[query].phase {
            lodged.outstanding = 0;
        }
    });
}

#[test]
fn a_query_that_has_ended_and_is_there() {
    let mut scene = Scene::new();
    let (_, query) = scene.has_claimed("a");
    scene.refuses("has ended and is still there", |state| state.lookups.queries_mut()[query].handler = None);
}

#[test]
fn a_query_that_its_row_has_forgotten() {
    let mut scene = Scene::new();
    scene.has_claimed("a");
    let row = scene.row("a");
    scene.refuses("is in the list of its row", |state| {
        *state.definitions.waiting_mut(row).expect("it materializes") = Waiters::NOBODY;
    });
}

#[test]
fn a_lookup_that_waits_for_a_generator_that_is_free() {
    let (scene, generator, [_, _]) = Scene::generating();
    scene.refuses("which knows nothing of it", |state| state.lookups.break_generator(generator, None));
    let (mut scene, generator, [first, _]) = Scene::generating();
    scene.state.withdraw(first, &mut scene.effects);
    scene.refuses("waits for a generator that is free", |state| {
        state.lookups.break_generator(generator, None)
    });
}

#[test]
fn a_lookup_that_its_generator_has_forgotten() {
    let (scene, generator, [_, _]) = Scene::generating();
    scene.refuses("which knows nothing of it", |state| state.lookups.forget_queue(generator));
    let (scene, generator, [_, second]) = Scene::generating();
    scene.refuses("which knows nothing of it", |state| {
        state.lookups.break_generator(generator, Some(second));
        state.lookups.forget_queue(generator);
    });
}

#[test]
fn an_emitted_row_that_waits_for_nothing() {
    let mut scene = Scene::new();
    let (_, query) = scene.has_claimed("a");
    scene.state.withdraw(query, &mut scene.effects);
    let row = scene.row("a");
    let address = ExecutorAddr::new(1);
    let RowState::Materializing { claim, .. } = scene.state.definitions[row].state else {
        panic!("it was claimed")
    };
    scene.refuses("is emitted and waits for nothing", |state| {
        state.definitions.end_claim(claim, &mut Vec::new());
        state.definitions.parts().rows[row].state = RowState::Emitted {
            address,
            priority: RisingPriority::at(TaskPriority::Demanded),
            waiting: Waiters::NOBODY,
        };
    });
}

/// As a removal would leave it that tells no dependants.
#[test]
fn an_emitted_row_that_needs_what_is_gone() {
    let mut scene = Scene::waiting();
    let row = scene.row("b");
    let node =
        scene.state.definitions[row].waiting().and_then(|waiting| waiting.node).expect("it is depended on");
    scene.defines("c");
    scene.has_claimed("d");
    let other = scene.row("d");
    scene.refuses("which is gone", |state| {
        let claim = state.definitions[row].claim().expect("it was claimed");
        drop(state.definitions.delete_row(row, RowNotice::Nothing, &mut Effects::default()));
        assert!(state.definitions.get_claim(claim).is_none());
        // Its node lives on, as another row's.
        state.definitions.waiting_mut(other).expect("it materializes").node = Some(node);
    });
}

/// As a failure would leave it that tells no dependants.
#[test]
fn an_emitted_row_that_needs_what_has_failed() {
    let mut scene = Scene::waiting();
    let row = scene.row("b");
    let node =
        scene.state.definitions[row].waiting().and_then(|waiting| waiting.node).expect("it is depended on");
    scene.has_claimed("d");
    let other = scene.row("d");
    scene.refuses("which is Failed", |state| {
        let failure = state.record_failure(row, FailureCause::Abandoned);
        let claim = state.definitions[row].claim().expect("it was claimed");
        state.definitions.end_claim(claim, &mut Vec::new());
        state.definitions.parts().rows[row].state =
            RowState::Failed { failed_row: FailedRow { failure, root: row, depth: 0 }, via: row };
        state.definitions.waiting_mut(other).expect("it materializes").node = Some(node);
    });
}

#[test]
fn a_failure_that_counts_wrong() {
    let scene = Scene::failed("a");
    scene.refuses("counts the rows that tell of it", |state| {
        state.failures.break_count();
    });
}

#[test]
fn a_turn_that_is_not_that_of_the_blocked_thread_that_has_told_of_it() {
    let mut scene = Scene::new();
    scene.has_claimed("a");
    let query = scene.asks_for("a");
    let holdings = Holdings { held: vec![Held::Strand(SerialQueueId(1))], ..Holdings::default() };
    scene.state.begin_wait(query, holdings, &mut scene.effects).expect("it waits");
    scene.refuses("what blocked threads hold", |state| state.waits.break_holders());
}

#[test]
fn a_record_of_what_is_not_ready() {
    let scene = Scene::ready("a");
    let row = scene.row("a");
    scene.refuses("changed its visibility", |state| {
        state.definitions.parts().rows[row].flags.toggle(SymbolFlags::EXPORTED)
    });
    let scene = Scene::ready("a");
    let name = scene.name("a");
    scene.refuses("is Ready and has no record", |state| {
        state.definitions.parts().ready_index.disappear_alone(&name)
    });
}

#[test]
fn a_gate_that_lets_readers_pass() {
    let scene = Scene::new();
    scene.refuses("readers know whether the session is open", |state| state.definitions.close_ready_index());
    let mut scene = Scene::new();
    scene.state.start_closing(Shutdown::Drain);
    scene.refuses("readers know whether the session is open", |state| {
        *state.definitions.parts().ready_index = crate::ready_index::ReadyIndexWriter::new();
        for dylib in state.definitions.dylibs().map(|(id, _)| id).collect::<Vec<_>>() {
            state.definitions.parts().ready_index.add_dylib(dylib);
        }
    });
    let scene = Scene::new();
    scene.refuses("no row is left to be removed", |state| {
        state.definitions.parts().ready_index.set_removing(true)
    });
}

#[test]
fn readers_that_know_of_another_generator() {
    let scene = Scene::new();
    let dylib = scene.dylib;
    scene.refuses("whether `main` generates", |state| {
        state.definitions.parts().ready_index.set_generates(dylib, true)
    });
}
