//! Objects that share sections are linked as one, and yet each is a file of its own: it may be removed, refused or fail at any
//! moment, before the others know of it or after, and they go on.
//!
//! ```text
//!   declared ─▶ defined ─▶ asked for ─▶ here, others are expected ─▶ addresses announced ─▶ emitted ─▶ Ready
//! ```
//!
//! Each test stops at one of these arrows. Units run on the thread that asks, so what is not answered when a step returns never is.

use std::sync::Arc;

use crate::link_support::linking::{Linking, go_on, take};
use uruk_core::shared_error;

/// A file with one element of the section that all files here share, and a function that answers how long that is together.
fn sharing(name: &str, value: u64) -> String {
    format!(
        "__attribute__((section(\"things\"), used)) static unsigned long {name}_thing = {value};
         extern unsigned long __start_things[] __attribute__((visibility(\"hidden\")));
         extern unsigned long __stop_things[] __attribute__((visibility(\"hidden\")));
         unsigned long {name}(void) {{ return {value}; }}
         unsigned long {name}_counts(void) {{ return __stop_things - __start_things; }}"
    )
}

/// The code of all files was once the first file's alone: when its tracker was removed, the others' symbols were found as before and
/// led into memory that something else had by then.
#[test]
fn code_that_is_linked_together_stays_until_the_last_of_its_trackers_goes() {
    for removed_first in [0, 1] {
        let linking = Linking::new();
        let [a, b] = ["a", "b"]
            .map(|name| linking.define(linking.file(name, &sharing(name, u64::from(name == "b") + 1))));
        let (of_a, of_b) = (linking.find("a").expect("linked"), linking.find("b").expect("linked"));
        assert_eq!((of_a(), of_b(), linking.find("a_counts").expect("linked")()), (1, 2, 2));
        assert_eq!(linking.allocations(), 1, "they are one piece");
        let (gone, stays) = if removed_first == 0 { (a, b) } else { (b, a) };
        gone.remove().expect("nothing goes wrong");
        assert_eq!(linking.allocations(), 1, "the other is still there");
        // The next object would take the memory, if it were free.
        linking.define(
            linking.file("c", "unsigned long c(void) { return 33; } unsigned long d(void) { return 44; }"),
        );
        linking.find("c").expect("linked");
        let (gone, name, function) = if removed_first == 0 { ("a", "b", of_b) } else { ("b", "a", of_a) };
        assert_eq!(function(), u64::from(name == "b") + 1);
        assert!(linking.find(gone).is_none());
        stays.remove().expect("nothing goes wrong");
        assert_eq!(linking.allocations(), 1, "that of `c`");
    }
}

#[test]
fn shares_of_one_piece_can_be_joined() {
    let linking = Linking::new();
    let [a, b] = ["a", "b"].map(|name| linking.define(linking.file(name, &sharing(name, 1))));
    assert_eq!(linking.find("a_counts").expect("linked")(), 2);
    a.transfer_to(&b).expect("of one dylib");
    drop(a);
    assert_eq!((linking.find("a").expect("moved")(), linking.allocations()), (1, 1));
    b.remove().expect("nothing goes wrong");
    assert_eq!(linking.allocations(), 0);
}

#[test]
fn files_of_a_group_that_refer_to_each_other_become_ready_together() {
    let linking = Linking::new();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let calls =
            format!("unsigned long {other}(void); unsigned long {name}_calls(void) {{ return {other}(); }}");
        let value = u64::from(name == "b") + 1;
        linking.define(linking.file(name, &format!("{}{calls}", sharing(name, value))));
    }
    assert_eq!(["a_calls", "b_calls"].map(|name| linking.ask(name).function().expect("linked")()), [2, 1]);
}

/// A removed file once stayed expected for ever, and with it all files that shared sections in that session.
#[test]
fn a_file_that_was_removed_before_anybody_asked_is_not_waited_for() {
    let linking = Linking::new();
    linking.define(linking.file("a", &sharing("a", 1))).remove().expect("nothing goes wrong");
    linking.define(linking.file("b", &sharing("b", 2)));
    let counts = linking.ask("b_counts").function().expect("linked");
    assert_eq!(counts(), 1);
}

/// A file is declared, then defined, and that may be refused. A lookup in between once expected it for ever.
#[test]
fn a_file_whose_definition_is_refused_is_not_waited_for() {
    for withdraws in [true, false] {
        let linking = Linking::new();
        linking.define(linking.file("a", &sharing("a", 1)));
        linking.define(linking.unit("duplicate", "unsigned long b(void) { return 3; }"));
        let refused = linking.file("b", &sharing("b", 2));
        assert_eq!(linking.ask("a_counts").function().expect("linked")(), 1);
        let initializer = refused.initializer();
        linking.dylib.define(Box::new(refused)).expect_err("`b` is there");
        if withdraws {
            linking.platform.withdraw(&initializer);
        }
        // Nor does it keep those that come later.
        linking.define(linking.file("c", &sharing("c", 3)));
        assert_eq!(linking.ask("c_counts").function().expect("linked")(), 1);
    }
}

#[test]
fn a_file_that_is_removed_while_its_group_waits_leaves_the_others_alone() {
    let linking = Linking::new();
    let a = linking.define(linking.file("a", &sharing("a", 1)));
    let (b, parked) = linking.file("b", &sharing("b", 2)).parked();
    linking.define(b);
    linking.define(linking.file("c", &sharing("c", 3)));
    let answers = ["a", "b_counts", "c"].map(|name| linking.ask(name));
    assert!(answers.iter().all(|answer| !answer.is_there()), "`b` is expected");
    a.remove().expect("nothing goes wrong");
    let [of_a, b_counts, of_c] = answers;
    let told = of_a.function().expect_err("it is gone");
    assert!(told.contains("removed"), "{told}");
    assert!(!of_c.is_there(), "`b` is expected still");
    go_on(&parked);
    assert_eq!((b_counts.function().expect("linked")(), of_c.function().expect("linked")()), (2, 3));
    assert_eq!(linking.allocations(), 1);
}

#[test]
fn a_file_that_is_removed_while_it_is_expected_leaves_the_others_alone() {
    let linking = Linking::new();
    linking.define(linking.file("a", &sharing("a", 1)));
    let (b, parked) = linking.file("b", &sharing("b", 2)).parked();
    let b = linking.define(b);
    let answer = linking.ask("a_counts");
    assert!(!answer.is_there(), "`b` is expected");
    b.remove().expect("nothing goes wrong");
    assert_eq!(answer.function().expect("linked")(), 1);
    // An object that comes too late is refused, and does no harm.
    go_on(&parked);
    assert_eq!(linking.allocations(), 1);
}

#[test]
fn a_file_that_fails_fails_its_group_with_its_reason() {
    let linking = Linking::new();
    linking.define(linking.file("a", &sharing("a", 1)));
    let (b, parked) = linking.file("b", &sharing("b", 2)).parked();
    linking.define(b);
    let answer = linking.ask("a");
    let (_, responsibility) = take(&parked);
    responsibility.fail(shared_error("no room for b"));
    let told = answer.function().expect_err("a program without `b` is another program");
    assert!(told.contains("no room for b"), "{told}");
    assert_eq!(linking.allocations(), 0);
}

/// Natively each library has sections of its own.
#[test]
fn files_of_two_dylibs_are_linked_apart() {
    let linking = Linking::new();
    let other = linking.session.create_jit_dylib("other").expect("new");
    for name in ["a", "b"] {
        linking.define(linking.file(name, &sharing(name, 1)));
    }
    for name in ["c", "d", "e"] {
        linking.define_in(&other, linking.file(name, &sharing(name, 1)));
    }
    assert_eq!(linking.ask("a_counts").function().expect("linked")(), 2);
    assert_eq!(linking.ask_in(&other, "c_counts").function().expect("linked")(), 3);
}

/// `b` is removed when both have their addresses and wait for that of `late`. Code that refers to `b` falls with it, as it would if both
/// were linked apart (I4). Other code goes on, though all of them are one piece by then.
#[test]
fn what_refers_to_a_file_that_is_removed_during_the_link_falls_with_it_and_nobody_else() {
    let linking = Linking::new();
    let needs_b = "unsigned long b(void); unsigned long needs(void) { return b(); }";
    let needs_late = "unsigned long late(void); unsigned long waits(void) { return late(); }";
    linking.define(linking.file("a", &sharing("a", 1)));
    let b = linking.define(linking.file("b", &sharing("b", 2)));
    linking.define(linking.file("needs", &format!("{}{needs_b}", sharing("c", 3))));
    linking.define(linking.file("waits", &format!("{}{needs_late}", sharing("d", 4))));
    let (late, parked) = linking.file("late", "unsigned long late(void) { return 5; }").parked();
    linking.define(late);
    let [of_a, needs, waits] = ["a", "needs", "waits"].map(|name| linking.ask(name));
    assert!(!of_a.is_there(), "`late` has no address yet");
    b.remove().expect("nothing goes wrong");
    go_on(&parked);
    assert_eq!((of_a.function().expect("linked")(), waits.function().expect("linked")()), (1, 5));
    let told = needs.function().expect_err("it calls what is gone");
    assert!(told.contains("removed"), "{told}");
    assert_eq!(linking.allocations(), 2, "the group, and `late`");
}

/// A group that waits holds no session: a handle in it would keep all of it alive. Each file depended on all symbols that any file of the
/// group refers to.
#[test]
fn what_refers_to_another_definition_that_fails_falls_with_it_and_nobody_else() {
    let linking = Linking::new();
    // It has an address, and waits for what is taken away from it.
    let (gone, _never) = linking.file("gone", "unsigned long gone(void) { return 1; }").parked();
    let waiting = "unsigned long gone(void); unsigned long needed(void) { return gone(); }";
    let of_gone = linking.define(gone);
    linking.define(linking.file("needed", waiting));
    let calls = "unsigned long needed(void); unsigned long a_calls(void) { return needed(); }";
    linking.define(linking.file("a", &format!("{}{calls}", sharing("a", 1))));
    linking.define(linking.file("b", &sharing("b", 2)));
    let (of_a, of_b) = (linking.ask("a"), linking.ask("b"));
    of_gone.remove().expect("nothing goes wrong");
    assert!(of_a.function().unwrap_err().contains("needed"));
    assert_eq!(of_b.function().expect("it refers to nothing of that")(), 2);
}

#[test]
fn a_group_that_waits_ends_with_its_session() {
    let linking = Linking::new();
    linking.define(linking.file("a", &sharing("a", 1)));
    let (b, parked) = linking.file("b", &sharing("b", 2)).parked();
    linking.define(b);
    let answer = linking.ask("a");
    linking.session.close().expect("nothing goes wrong");
    answer.function().expect_err("the session is closed");
    drop(take(&parked));
    let memory = linking.memory.clone();
    drop(linking);
    assert_eq!(Arc::strong_count(&memory), 1, "nobody links any more");
}
