//! The remains of many redefinitions: nothing.

use crate::redefine::{Answer, body};
use crate::support::{alone, engine, is_alone, resident_bytes};

/// A function is redefined, called, and its older body removed, again and again: 3,000 times, or as often as URUK_REDEFINITIONS says.
fn redefine_and_remove(times: i32) {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (name, mut before) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*name)]).expect("a new name");
    let call = || {
        // A handle holds what its function leads to while it is there.
        // SAFETY: all bodies have this signature.
        let answer = unsafe { jit.get::<Answer>("answer") }.expect("its stub");
        answer()
    };
    assert_eq!(call(), 1);
    let (warm_at, mut warm) = (times / 2, 0);
    for number in 2..times {
        let (name, tracker) = body(&jit, &bodies, number);
        jit.redefine(&bodies, [("answer", &*name)]).expect("it is a lazy function");
        assert_eq!(call(), number);
        drop(std::mem::replace(&mut before, tracker));
        if number == warm_at {
            warm = resident_bytes();
        }
    }
    let grown = resident_bytes() - warm;
    assert!(grown < 2 << 20, "{grown} bytes more after another half of {times} redefinitions");
    assert!(jit.memory_usage().allocations <= 3, "stubs, a body, and perhaps one before");
}

/// In a process of its own, since it measures that.
#[test]
fn memory_stays_level() {
    let times = std::env::var("URUK_REDEFINITIONS").ok().and_then(|times| times.parse().ok());
    if is_alone() {
        return redefine_and_remove(times.unwrap_or(3_000));
    }
    let output = alone("redefine_level::memory_stays_level");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
