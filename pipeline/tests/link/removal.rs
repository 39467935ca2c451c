//! Linked code keeps its resources as long as the tracker of its symbols: its memory, its entry for the unwinder, and the functions that
//! the platform would hand out to run. They go with the tracker. Each test has a process of its own, because registrations are counted for
//! the whole process.

use crate::link_support::linking::{Answer, Linking, Parked, go_on, take};
use uruk_core::{ResourceTracker, shared_error};
use uruk_pipeline::runtime::{ifunc, unwind};

/// Objects whose traces in the process are counted.
trait Counted {
    fn define_answer(&self, name: &str, value: u64) -> ResourceTracker;
    fn occupied(&self) -> (u64, usize);
}

impl Counted for Linking {
    /// Defines `name`, a function that answers `value`, with a tracker of its own.
    fn define_answer(&self, name: &str, value: u64) -> ResourceTracker {
        let source =
            format!("static unsigned long value = {value}; unsigned long {name}(void) {{ return value; }}");
        self.define(self.unit(name, &source))
    }

    /// Allocations, and objects that the unwinder knows.
    fn occupied(&self) -> (u64, usize) {
        (self.allocations(), unwind::registered_objects())
    }
}

#[test]
fn code_stays_callable_until_its_tracker_is_removed_and_goes_with_it() {
    alone!();
    let linking = Linking::new();
    let (one, two) = (linking.define_answer("one", 1), linking.define_answer("two", 2));
    assert_eq!(linking.occupied(), (0, 0), "nobody has asked yet");
    let (first, second) = (linking.find("one").expect("linked"), linking.find("two").expect("linked"));
    assert_eq!((first(), second(), linking.occupied()), (1, 2, (2, 2)));
    one.remove().expect("nothing goes wrong");
    assert_eq!((second(), linking.occupied()), (2, (1, 1)));
    assert!(linking.find("one").is_none());
    // Trackers that others have joined go with them.
    let three = linking.define_answer("three", 3);
    let third = linking.find("three").expect("linked");
    two.transfer_to(&three).expect("of one dylib");
    drop(two);
    assert_eq!((second(), third(), linking.occupied()), (2, 3, (2, 2)));
    three.remove().expect("nothing goes wrong");
    assert_eq!(linking.occupied(), (0, 0));
}

#[test]
fn code_goes_with_its_session_closed_or_not() {
    alone!();
    for closes in [true, false] {
        let Linking { session, dylib, layer, memory, platform } = {
            let linking = Linking::new();
            linking.define_answer("kept", 4);
            assert_eq!(linking.find("kept").expect("linked")(), 4);
            assert_eq!(linking.occupied(), (1, 1));
            linking
        };
        if closes {
            session.close().expect("nothing goes wrong");
            assert_eq!((memory.usage().allocations, unwind::registered_objects()), (0, 0));
        }
        drop((session, dylib, layer, platform));
        assert_eq!((memory.usage().allocations, unwind::registered_objects()), (0, 0));
    }
}

/// A file that wants something of each kind to be run, and a function of it that calls `below`.
const RUNS: &str = "
    unsigned long below(void);
    static unsigned long made;
    __attribute__((constructor)) static void construct(void) { made = below(); }
    __attribute__((destructor)) static void destroy(void) { made = 0; }
    static unsigned long one(void) { return 1; }
    static unsigned long (*choose(void))(void) { return one; }
    unsigned long chosen(void) __attribute__((ifunc(\"choose\")));
    unsigned long runs(void) { return made + chosen() + below(); }";

const NOTHING: [usize; 3] = [0; 3];

/// They stayed recorded, so that an embedder who ran what he was handed out jumped into memory that was something else's by then.
#[test]
fn what_a_file_wants_to_be_run_is_forgotten_when_the_file_is_removed() {
    alone!();
    let linking = Linking::new();
    linking.define_answer("below", 40);
    let runs = linking.define(linking.file("runs", RUNS));
    linking.find("runs").expect("linked");
    runs.remove().expect("nothing goes wrong");
    assert_eq!((linking.handed_out(), linking.allocations()), (NOTHING, 1));

    linking.define(linking.file("runs", RUNS));
    linking.find("runs").expect("linked again");
    assert_eq!(linking.handed_out(), [1, 1, 1]);
    linking.dylib.clear().expect("nothing goes wrong");
    assert_eq!((linking.handed_out(), linking.occupied()), (NOTHING, (0, 0)));
}

/// `below` needs an undefined symbol. `runs` is fixed up and emitted when `below` fails, as the order on this thread has it.
#[test]
fn nothing_is_run_of_a_file_that_calls_what_cannot_be_linked() {
    alone!();
    let linking = Linking::new();
    linking.define(linking.file("runs", RUNS));
    let below = "unsigned long nowhere(void); unsigned long below(void) { return nowhere(); }";
    linking.define(linking.file("below", below));
    let told = linking.ask("runs").function().expect_err("`nowhere` is not defined");
    assert!(told.contains("nowhere"), "{told}");
    assert_eq!(linking.handed_out(), NOTHING);
    // It was emitted: its tracker has it until that is removed.
    linking.dylib.clear().expect("nothing goes wrong");
    assert_eq!(linking.occupied(), (0, 0));
}

/// `below` had an address and has failed when `runs`, which has waited for that of `slow` as well, is to be emitted.
///
/// Its code once stayed in the tracker.
#[test]
fn nothing_is_left_of_a_file_whose_emission_was_refused() {
    alone!();
    let linking = Linking::new();
    let waits = "unsigned long slow(void); unsigned long waits(void) { return slow(); }";
    linking.define(linking.file("runs", &format!("{RUNS}{waits}")));
    let below = "unsigned long late(void); unsigned long below(void) { return late(); }";
    linking.define(linking.file("below", below));
    let file =
        |name: &str| linking.file(name, &format!("unsigned long {name}(void) {{ return 1; }}")).parked();
    let ((late, parked_late), (slow, parked_slow)) = (file("late"), file("slow"));
    let (_late, _slow) = (linking.define(late), linking.define(slow));
    let answer = linking.ask("runs");
    take(&parked_late).1.fail(shared_error("late is lost"));
    assert!(!answer.is_there(), "`slow` has no address yet");
    go_on(&parked_slow);
    let told = answer.function().expect_err("it calls `late`");
    assert!(told.contains("late is lost"), "{told}");
    assert_eq!((linking.handed_out(), linking.occupied()), (NOTHING, (1, 1)), "`slow` alone is there");
}

/// Asks for `runs`, which calls `below`, which calls `late`, which begins when the test says so. `below` has an address and is not
/// emitted, so that `runs` is emitted and not Ready: its constructor would call what may still fail.
fn ask_for_what_waits(linking: &Linking) -> (Answer, Parked) {
    linking.define(linking.file("runs", RUNS));
    let waits = "unsigned long late(void); unsigned long below(void) { return late(); }";
    linking.define(linking.file("below", waits));
    let (late, parked) = linking.file("late", "unsigned long late(void) { return 41; }").parked();
    linking.define(late);
    (linking.ask("runs"), parked)
}

#[test]
fn nothing_is_run_of_a_file_before_all_that_it_calls_is_there() {
    alone!();
    let linking = Linking::new();
    let (answer, parked) = ask_for_what_waits(&linking);
    assert_eq!((answer.is_there(), linking.handed_out()), (false, NOTHING));
    go_on(&parked);
    let runs = answer.function().expect("linked");
    let platform = &linking.platform;
    // SAFETY: what is handed out is Ready, and its code is there to the end of the test.
    platform.take_indirect_functions().into_iter().for_each(|descriptor| unsafe { ifunc::bind(descriptor) });
    for function in platform.take_initializers() {
        // SAFETY: as above; constructors have this signature.
        unsafe { std::mem::transmute::<*const u8, extern "C" fn()>(function.address.to_ptr())() };
    }
    assert_eq!(runs(), 41 + 1 + 41);
    assert_eq!(linking.handed_out(), [0, 1, 0], "each once, and the destructor is left");
}

#[test]
fn nothing_is_run_of_a_file_that_falls_after_its_emission() {
    alone!();
    let linking = Linking::new();
    let (answer, parked) = ask_for_what_waits(&linking);
    take(&parked).1.fail(shared_error("late is lost"));
    let told = answer.function().expect_err("it calls `late`");
    assert!(told.contains("late is lost"), "{told}");
    assert_eq!(linking.handed_out(), NOTHING);
}

/// Files of one group are recorded one by one, as they are removed.
#[test]
fn what_is_run_of_a_group_is_run_of_those_that_are_left() {
    alone!();
    let linking = Linking::new();
    let source = |name: &str| {
        format!(
            "__attribute__((section(\"things\"), used)) static int thing_of_{name};
             __attribute__((constructor)) static void construct(void) {{}}
             static int one(void) {{ return 1; }}
             static int (*choose(void))(void) {{ return one; }}
             int chosen_of_{name}(void) __attribute__((ifunc(\"choose\")));
             int {name}(void) {{ return chosen_of_{name}(); }}"
        )
    };
    let [a, _b] = ["a", "b"].map(|name| linking.define(linking.file(name, &source(name))));
    linking.find("a").expect("linked");
    assert_eq!(linking.allocations(), 1, "they are one piece");
    a.remove().expect("nothing goes wrong");
    assert_eq!((linking.handed_out(), linking.allocations()), ([1, 0, 1], 1));
}
