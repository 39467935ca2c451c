//! Plugins in C++: what they begin with, and how they end.

use crate::support::{alone, cpp, engine, is_alone};

const ANSWER: &str = r#"
#include <string>
extern "C" int answer() { return static_cast<int>(std::string(42, 'x').size()); }
"#;

#[test]
fn a_plugin_is_linked_and_called() {
    if !is_alone() {
        let output = alone("endings::a_plugin_is_linked_and_called");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let jit = engine(1);
    jit.add_object(cpp("answer.o", ANSWER)).expect("the names are new");
    // SAFETY: the function has this signature, and the engine outlives the call.
    let answer: extern "C" fn() -> i32 = unsafe { jit.function("answer") }.expect("it links");
    assert_eq!(answer(), 42);
}
