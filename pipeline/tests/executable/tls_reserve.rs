//! Thread-local storage where the executable keeps a reserve, as the command does: every model, on every thread.
//!
//! Code that compilers emit for executables used to be refused: it is all code that is not compiled for a library. In a binary of its own:
//! a reserve is the process's, and this one has it.

use std::sync::Once;

use crate::link_support::*;
use crate::threads::*;
use uruk_core::sync::{Mutex, MutexGuard};
use uruk_pipeline::runtime::tls;

// Threads of the tests are known then, as the program's are in the command.
uruk_pipeline::export_pthread_create!();
uruk_pipeline::export_tls_reserve!();

/// Offers the reserve once, and keeps it for one test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static OFFER: Once = Once::new();
    let alone = ALONE.lock();
    OFFER.call_once(|| assert!(offer_tls_reserve(), "the executable has the reserve"));
    assert!(!offer_tls_reserve(), "there is one reserve");
    alone
}

/// A test's own thread is one that started before the reserve was offered. A new one stands for the main thread.
fn on_a_known_thread(test: impl FnOnce() + Send) {
    let _alone = alone();
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test passes"));
}

const MODELS: [&[&str]; 6] = [
    &[], // what the compiler does by default
    &["-ftls-model=local-exec"],
    &["-fPIC", "-ftls-model=initial-exec"],
    &["-fPIC", "-ftls-model=local-dynamic"],
    &["-fPIC", "-ftls-model=global-dynamic"],
    &["-fPIC", "-mtls-dialect=gnu2"],
];

/// How the other object reaches what the first defines; by default that is initial-exec.
const NEIGHBOUR_MODELS: [&[&str]; 3] = [&[], &["-fPIC"], &["-fPIC", "-mtls-dialect=gnu2"]];

#[test]
fn every_model_agrees_on_every_thread() {
    on_a_known_thread(|| {
        let mut combinations = 0;
        for tool in compilers() {
            for model in MODELS {
                for level in ["-O0", "-O2"] {
                    let linking = Linking::new();
                    let before = Caller::start();
                    linking.add("variables.o", compile(tool, "c", VARIABLES, &[model, &[level]].concat()));
                    let other = NEIGHBOUR_MODELS[combinations % 3];
                    linking.add("neighbour.o", compile(tool, "c", NEIGHBOUR, other));
                    check_on_all_threads(
                        &linking,
                        &before,
                        &format!("{tool:?} {model:?} {level}, and {other:?}"),
                    );
                    before.end();
                    combinations += 1;
                }
            }
        }
        assert!(combinations >= 12);
    });
}

/// Hidden variables of another object are reached by their offset in the common module, if there is one.
#[test]
fn hidden_variables_of_another_object_are_in_the_same_module() {
    on_a_known_thread(|| {
        let hidden = "#pragma GCC visibility push(hidden)\n";
        for tool in compilers() {
            let linking = Linking::new();
            let before = Caller::start();
            linking.add("variables.o", compile(tool, "c", &format!("{hidden}{VARIABLES}"), &["-fPIC"]));
            linking
                .add("neighbour.o", compile(tool, "c", &format!("{hidden}{NEIGHBOUR}"), &["-fPIC", "-O2"]));
            linking.add("exported.o", compile(tool, "c", EXPORTED, &["-fPIC"]));
            let [place, place_else] = ["place", "place_else"].map(|name| linking.find(name).expect("links"));
            assert_eq!(place(), place_else(), "{tool:?}");
            assert_eq!(before.call(place), before.call(place_else), "{tool:?}");
            before.end();
        }
    });
}

/// Lets the test call hidden functions.
const EXPORTED: &str = "
    __attribute__((visibility(\"hidden\"))) unsigned long where(void), where_else(void);
    unsigned long place(void) { return where(); }
    unsigned long place_else(void) { return where_else(); }";

#[test]
fn alignment_is_kept_up_to_a_page() {
    on_a_known_thread(|| {
        for (align, kept) in [(128, true), (4096, true), (8192, false)] {
            let source = format!(
                "_Alignas({align}) __thread char aligned = 1;
                 unsigned long off(void) {{ aligned++; return (unsigned long)&aligned % {align}; }}"
            );
            let linking = Linking::new();
            let before = Caller::start();
            linking.add("aligned.o", compile(CC, "c", &source, &["-O1"]));
            if kept {
                let off = linking.find("off").expect("links");
                assert_eq!((off(), before.call(off)), (0, 0), "{align}");
            } else {
                let message = linking.refusal("off");
                assert!(message.contains("aligned.o") && message.contains("-fPIC"), "{message}");
            }
            before.end();
        }
    });
}

#[test]
fn a_full_reserve_is_an_error_and_room_comes_back() {
    on_a_known_thread(|| {
        let variable = |name: &str, bytes: usize, flags: &[&str]| {
            let source = format!(
                "__thread char room_{name}[{bytes}] = {{3}};
                 unsigned long {name}(void) {{ return room_{name}[0]++ == 3 && !room_{name}[{bytes} - 1]; }}"
            );
            compile(CC, "c", &source, flags)
        };
        let (before, linking) = (Caller::start(), Linking::new());
        let (most, some) = (tls::RESERVE_BYTES - 4096, 6000);
        let first = linking.add("first.o", variable("first", most, &[]));
        assert_eq!(linking.find("first").expect("links")(), 1);
        linking.add("second.o", variable("second", some, &[]));
        let message = linking.refusal("second");
        for word in ["`room_second`", "second.o", "local-exec", "of whose 32768 bytes 4096 are free", "-fPIC"]
        {
            assert!(message.contains(word), "no `{word}`: {message}");
        }
        // An object that can do without the reserve does.
        linking.add("third.o", variable("third", some, &["-fPIC"]));
        let third = linking.find("third").expect("links");
        assert_eq!((third(), before.call(third)), (1, 1));
        // A removed object gives its room back, and leaves none of its values, also on threads that exist already.
        let first_function = linking.find("first").expect("linked");
        assert_eq!(before.call(first_function), 1);
        first.remove().expect("nobody runs it");
        linking.add("fourth.o", variable("fourth", most, &[]));
        let fourth = linking.find("fourth").expect("links");
        let after = Caller::start();
        assert_eq!((fourth(), before.call(fourth), after.call(fourth)), (1, 1, 1));
        after.end();
        before.end();
    });
}

/// An object that could do without the reserve gets room in it, so that others may reach its variables at a fixed
/// distance; but never the half that is kept for those which cannot do without.
#[test]
fn half_of_the_reserve_is_kept_for_objects_that_need_it() {
    on_a_known_thread(|| {
        let linking = Linking::new();
        for number in 0..40 {
            let source = format!(
                "__thread char room_{number}[1000]; unsigned long touch_{number}(void) {{ return room_{number}[999]++; }}"
            );
            linking.add(&format!("{number}.o"), compile(CC, "c", &source, &["-fPIC"]));
            assert_eq!(linking.find(&format!("touch_{number}")).expect("links")(), 0);
        }
        let source = "__thread char needed[16000]; unsigned long touch(void) { return needed[15999]++; }";
        linking.add("needed.o", compile(CC, "c", source, &[]));
        assert_eq!(linking.find("touch").expect("half of it is free")(), 0);
    });
}

/// Offsets of the reserve are negative, and so may be those of symbols in their sections: compilers make such symbols for
/// arrays that they index from one. Their sum was taken for an overflow.
#[test]
fn a_symbol_may_lie_before_its_section() {
    const SOURCE: &str = "
        __asm__(\".pushsection .tdata, \\\"awT\\\", @progbits\\n.p2align 3\\nfirst: .quad 7\\n\"
                \".globl early\\n.hidden early\\n.type early, @object\\n.set early, first - 8\\n.popsection\");
        extern __thread unsigned long early[] __attribute__((visibility(\"hidden\")));
        unsigned long read(void) { return early[1]; }";
    on_a_known_thread(|| {
        for model in MODELS {
            let linking = Linking::new();
            linking.add("early.o", compile(CC, "c", SOURCE, model));
            assert_eq!(linking.find("read").expect("links")(), 7, "{model:?}");
        }
    });
}

/// The C library puts the executable's block on the stack of a thread, which natively is smaller by the reserve.
#[test]
fn threads_with_the_smallest_stacks_start() {
    on_a_known_thread(|| {
        extern "C" fn nothing(argument: *mut libc::c_void) -> *mut libc::c_void {
            argument
        }
        // SAFETY: the attributes are initialised before they are used, and the thread is joined.
        unsafe {
            let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            assert_eq!(libc::pthread_attr_setstacksize(&raw mut attributes, libc::PTHREAD_STACK_MIN), 0);
            let mut thread = 0;
            let started =
                libc::pthread_create(&raw mut thread, &raw const attributes, nothing, std::ptr::null_mut());
            assert_eq!(started, 0, "the C library says that the stack is too small");
            let mut bytes = 0;
            libc::pthread_attr_getstacksize(&raw const attributes, &raw mut bytes);
            assert_eq!(bytes, libc::PTHREAD_STACK_MIN, "the program's attributes are as they were");
            assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
            libc::pthread_attr_destroy(&raw mut attributes);
        }
    });
}

/// The parent's other threads are not there in the child, nor their stacks.
#[test]
fn a_child_of_fork_links_for_its_own_thread() {
    on_a_known_thread(|| {
        let before = Caller::start();
        let object = compile(CC, "c", VARIABLES, &[]);
        // SAFETY: the child uses what it makes itself, and ends without the parent's handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let ends_well = std::panic::catch_unwind(|| {
                let linking = Linking::new();
                linking.add("variables.o", object);
                let check = linking.find("check").expect("links");
                assert_eq!(check(), 0);
                let after = Caller::start();
                assert_eq!(after.call(check), 0);
                after.end();
            });
            // SAFETY: ends this process.
            unsafe { libc::_exit(i32::from(ends_well.is_err())) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        before.end();
    });
}
