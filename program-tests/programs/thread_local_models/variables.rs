//! Thread-local values of every kind, as rustc has them.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

static TARGET: u32 = 3;

#[repr(align(64))]
struct Aligned([u8; 64]);

struct Loud(Cell<i32>, Cell<&'static CStr>);

impl Drop for Loud {
    fn drop(&mut self) {
        say(&format!("{} ends with {}", self.1.get().to_string_lossy(), self.0.get()));
    }
}

thread_local! {
    static FIRST: Cell<i32> = const { Cell::new(5) };
    static POINTER: Cell<&'static u32> = const { Cell::new(&TARGET) };
    static ZEROS: [Cell<u8>; 300] = const { [const { Cell::new(0) }; 300] };
    static ALIGNED: Aligned = const { Aligned([1; 64]) };
    static LOUD: Loud = Loud(Cell::new(FIRST.get() * 100), Cell::new(c"nobody"));
}

unsafe extern "C" {
    fn puts(text: *const c_char) -> c_int;
}

fn say(text: &str) {
    let text = CString::new(text).expect("no zero byte");
    unsafe { puts(text.as_ptr()) };
}

#[unsafe(no_mangle)]
extern "C" fn check(name: *const c_char) {
    let name: &'static CStr = unsafe { CStr::from_ptr(name) };
    let sum: u32 = ZEROS.with(|zeros| zeros.iter().map(|zero| u32::from(zero.get())).sum());
    let target = ptr::eq(POINTER.get(), &raw const TARGET);
    let straight = ALIGNED.with(|aligned| ptr::from_ref(aligned).addr() % 64 == 0 && aligned.0[63] == 1);
    let loud = LOUD.with(|loud| loud.0.get());
    say(&format!("{}: {} {target} {sum} {straight} {loud}", name.to_string_lossy(), FIRST.get()));
    FIRST.set(FIRST.get() + 1);
    ZEROS.with(|zeros| zeros[150].set(1));
    POINTER.set(&9);
    LOUD.with(|loud| (loud.0.set(loud.0.get() + 1), loud.1.set(name)));
}

#[unsafe(no_mangle)]
extern "C" fn r#where() -> *const Cell<i32> {
    FIRST.with(ptr::from_ref)
}

#[unsafe(no_mangle)]
extern "C" fn where_else() -> *const Cell<i32> {
    FIRST.with(ptr::from_ref)
}
