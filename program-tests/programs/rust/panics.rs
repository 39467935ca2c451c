//# stdout: caught: a message with 7
//# stdout: caught: static text
//# stdout: caught another payload: 42
//# stdout: dropped: inner middle outer
//# stdout: resumed: first
//# stdout: hook saw: index out of bounds: the len is 3 but the index is 9
//# stdout: thread: it went wrong
//# stdout: poisoned: yes, holds 5
//# stdout: 1000 panics caught
//# stdout: overflow: attempt to add with overflow
//! Panics caught, resumed, joined, hooked; destructors run on the way.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

thread_local! {
    static DROPPED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

struct Named(&'static str);

impl Drop for Named {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.borrow_mut().push(self.0));
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "something else".to_owned(),
    }
}

fn nest(depth: u32) {
    let _named = Named(["inner", "middle", "outer"][depth as usize]);
    if depth == 0 {
        panic!("deep");
    }
    nest(depth - 1);
}

fn main() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    println!("caught: {}", text(&*catch_unwind(|| panic!("a message with {}", 3 + 4)).unwrap_err()));
    println!("caught: {}", text(&*catch_unwind(|| panic!("static text")).unwrap_err()));
    let payload = catch_unwind(|| panic::panic_any(42_u64)).unwrap_err();
    println!("caught another payload: {}", payload.downcast::<u64>().unwrap());
    let _ = catch_unwind(|| nest(2));
    println!("dropped: {}", DROPPED.with(|dropped| dropped.borrow().join(" ")));
    let again = catch_unwind(|| resume_unwind(catch_unwind(|| panic!("first")).unwrap_err())).unwrap_err();
    println!("resumed: {}", text(&*again));
    panic::set_hook(Box::new(|info| println!("hook saw: {}", text(info.payload()))));
    let (list, index) = (vec![1, 2, 3], std::hint::black_box(9));
    let _ = catch_unwind(AssertUnwindSafe(|| list[index]));
    panic::set_hook(Box::new(|_| {}));
    let joined = std::thread::spawn(|| -> () { panic!("it went wrong") }).join();
    println!("thread: {}", text(&*joined.unwrap_err()));
    let shared = Arc::new(Mutex::new(5));
    let poisoner = Arc::clone(&shared);
    let _ = std::thread::spawn(move || {
        let _guard = poisoner.lock().unwrap();
        panic!("while holding");
    })
    .join();
    let poisoned = shared.lock();
    println!(
        "poisoned: {}, holds {}",
        if poisoned.is_err() { "yes" } else { "no" },
        *poisoned.unwrap_or_else(|e| e.into_inner())
    );
    let caught = (0..1000).filter(|i| catch_unwind(|| assert!(*i < 0, "{i}")).is_err()).count();
    println!("{caught} panics caught");
    let (a, b) = (std::hint::black_box(i32::MAX), std::hint::black_box(1));
    let sum = catch_unwind(|| a.checked_add(b).expect("attempt to add with overflow"));
    println!("overflow: {}", text(&*sum.unwrap_err()));
    panic::set_hook(hook);
}
