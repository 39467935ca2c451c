//! Bytes by tracker and by dylib: what they add up to is what the engine has.

use uruk::core::HeldMemory;
use uruk::{Function, Jit, OwnedTracker};

use crate::support::{c, engine};

type Answer = extern "C" fn() -> i32;

/// Adds `source` under a tracker of its own.
fn add(jit: &Jit, name: &str, source: &str) -> OwnedTracker {
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker).add_object(c(name, source)).expect("the names are free");
    tracker
}

fn get(jit: &Jit, symbol: &str) -> Function<Answer> {
    // SAFETY: the sources here define functions of this signature alone, and no test copies a pointer out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

/// The bytes of all linked code, as its memory counts them.
fn allocated(jit: &Jit) -> u64 {
    let usage = jit.memory_usage();
    [usage.code, usage.read_only, usage.data].map(|kind| kind.allocated_bytes).into_iter().sum()
}

fn bytes<const N: usize>(trackers: [&OwnedTracker; N]) -> [u64; N] {
    trackers.map(|tracker| tracker.memory_usage().bytes)
}

#[test]
fn each_tracker_has_its_bytes_and_all_together_have_what_there_is() {
    let jit = engine(1);
    let small = add(&jit, "small.o", "int small(void) { return 42; }");
    let large = add(&jit, "large.o", "char room[1 << 20] = {1}; int large(void) { return room[0]; }");
    assert_eq!(bytes([&small, &large]), [0, 0], "nothing is linked yet");
    assert_eq!((get(&jit, "small")(), get(&jit, "large")()), (42, 1));

    let [of_small, of_large] = bytes([&small, &large]);
    assert!(of_small > 0 && of_large > 1 << 20, "{of_small} {of_large}");
    assert_eq!(of_small + of_large, allocated(&jit));
    assert_eq!(jit.main_dylib().memory_usage().bytes, allocated(&jit));
    assert_eq!(jit.main_dylib().memory_usage().resources, 2);

    let rest = jit.create_tracker();
    small.transfer_to(&rest).expect("both are there");
    assert_eq!((bytes([&small]), rest.memory_usage().bytes), ([0], of_small));

    jit.remove_tracker(&large).expect("nothing needs it");
    assert_eq!((bytes([&large]), allocated(&jit)), ([0], of_small));
    let other = jit.create_dylib("other").expect("a new name");
    other.add_object(c("more.o", "int more(void) { return 7; }")).expect("a new name");
    other.lookup("more").expect("it links");
    let dylibs = [jit.main_dylib(), other.dylib()].map(|dylib| dylib.memory_usage().bytes);
    assert_eq!((dylibs[0], dylibs.iter().sum()), (of_small, allocated(&jit)));

    jit.remove_dylib(&other).expect("nothing needs it");
    assert_eq!(other.dylib().memory_usage(), HeldMemory::default());
    assert_eq!(allocated(&jit), of_small);
}

#[test]
fn code_that_a_handle_keeps_is_its_trackers_no_more() {
    let jit = engine(1);
    let tracker = add(&jit, "answer.o", "int answer(void) { return 42; }");
    let answer = get(&jit, "answer");
    let [held] = bytes([&tracker]);
    let unmapping = jit.remove_tracker(&tracker).expect("nothing needs it");
    assert_eq!((bytes([&tracker]), allocated(&jit), answer()), ([0], held, 42));
    assert_eq!(jit.pending_reclaim().bytes, 0, "no thread holds it back");
    drop(answer);
    unmapping.wait().expect("this thread may wait");
    assert_eq!(allocated(&jit), 0);
}

/// An object with an element of a section that all of them share. So they are linked as one.
fn sharing(jit: &Jit, name: &str) -> OwnedTracker {
    let source = format!(
        "__attribute__((section(\"things\"), used)) static unsigned long thing = 1;
         extern unsigned long __start_things[] __attribute__((visibility(\"hidden\")));
         extern unsigned long __stop_things[] __attribute__((visibility(\"hidden\")));
         int {name}(void) {{ return __stop_things - __start_things; }}"
    );
    add(jit, &format!("{name}.o"), &source)
}

/// Objects that were linked as one are one piece of memory, which is there until the last of them goes.
#[test]
fn memory_that_trackers_share_is_counted_once() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let jit = engine(1);
        let mut trackers = ["a", "b", "c"].map(|name| Some(sharing(&jit, name)));
        assert_eq!(get(&jit, "a")(), 3);
        let all = allocated(&jit);
        assert_eq!(jit.memory_usage().allocations, 1);
        for index in order {
            let mut left: Vec<_> =
                trackers.iter().flatten().map(|tracker| tracker.memory_usage().bytes).collect();
            left.sort_unstable();
            let counted = left.pop();
            assert_eq!((counted, left.iter().sum::<u64>(), allocated(&jit)), (Some(all), 0, all));
            jit.remove_tracker(&trackers[index].take().expect("each once")).expect("nothing needs it");
        }
        assert_eq!(allocated(&jit), 0);
    }
}
