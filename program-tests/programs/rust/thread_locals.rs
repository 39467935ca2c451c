//# stdout: thread 1 begins with 10 and []
//# stdout: thread 1 drops [1, 2]
//# stdout: thread 2 begins with 10 and []
//# stdout: thread 2 drops [2, 4]
//# stdout: main has 11 and [100]
//# stdout: of another thread while it ends: still usable
//# stdout: after its destruction: refused
//# stdout: main ends
//! Thread-local values with destructors, of this program and of the library.

use std::cell::{Cell, RefCell};
use std::thread;

struct Log(u32, Vec<u32>);

impl Drop for Log {
    fn drop(&mut self) {
        if self.0 != 0 {
            println!("thread {} drops {:?}", self.0, self.1);
        }
    }
}

struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        let number = PLAIN.with(Cell::get);
        println!("of another thread while it ends: {}", if number == 77 { "still usable" } else { "lost" });
        let state = if GONE.try_with(|_| ()).is_ok() { "allowed" } else { "refused" };
        println!("after its destruction: {state}");
    }
}

thread_local! {
    static PLAIN: Cell<u32> = const { Cell::new(10) };
    static LOG: RefCell<Log> = const { RefCell::new(Log(0, Vec::new())) };
    static LATE: Late = const { Late };
    static GONE: RefCell<String> = RefCell::new(String::from("gone"));
}

fn main() {
    for number in 1..=2 {
        thread::spawn(move || {
            LOG.with_borrow(|log| println!("thread {number} begins with {} and {:?}", PLAIN.get(), log.1));
            PLAIN.set(20 + number);
            LOG.with_borrow_mut(|log| *log = Log(number, vec![number, 2 * number]));
        })
        .join()
        .unwrap();
    }
    PLAIN.set(PLAIN.get() + 1);
    LOG.with_borrow_mut(|log| log.1.push(100));
    println!("main has {} and {:?}", PLAIN.get(), LOG.with_borrow(|log| log.1.clone()));
    thread::spawn(|| {
        // Destructors run newest first: GONE is gone when LATE's runs.
        LATE.with(|_| ());
        PLAIN.set(77);
        GONE.with_borrow(|text| assert_eq!(text, "gone"));
    })
    .join()
    .unwrap();
    println!("main ends");
}
