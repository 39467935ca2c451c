//# stdout: table: 0 1 1 2 3 5 8 13 21 34
//# stdout: dispatch: 12 8 20
//# stdout: names: Uruk Ur Lagash
//# stdout: counter: 3
//# stdout: zeroes: 1048576 bytes, 7 set
//# stdout: once: computed 42 once
//# stdout: references: 5 through 5
//# stdout: cell: [1, 2, 3]
//! Static data: tables made at compile time, vtables, relocated pointers, zeroes, lazily made values.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

const fn fibonacci() -> [u64; 10] {
    let mut table = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut i = 2;
    while i < 10 {
        table[i] = table[i - 1] + table[i - 2];
        i += 1;
    }
    table
}

static TABLE: [u64; 10] = fibonacci();
static OPERATIONS: [fn(i32, i32) -> i32; 3] = [|a, b| a + b, |a, b| a - b, std::ops::Mul::mul];
static NAMES: &[&(dyn Display + Sync)] = &[&"Uruk", &"Ur", &"Lagash"];
static COUNTER: AtomicUsize = AtomicUsize::new(0);
static ZEROES: [AtomicU8; 1 << 20] = [const { AtomicU8::new(0) }; 1 << 20];
static LIST: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static FIVE: u8 = 5;
static TO_FIVE: &&u8 = &&FIVE;

fn once() -> u32 {
    static VALUE: OnceLock<u32> = OnceLock::new();
    static COMPUTED: AtomicUsize = AtomicUsize::new(0);
    let value = *VALUE.get_or_init(|| {
        COMPUTED.fetch_add(1, Ordering::Relaxed);
        42
    });
    assert_eq!(COMPUTED.load(Ordering::Relaxed), 1);
    value
}

fn main() {
    println!("table: {}", TABLE.map(|x| x.to_string()).join(" "));
    println!("dispatch: {} {} {}", OPERATIONS[0](10, 2), OPERATIONS[1](10, 2), OPERATIONS[2](10, 2));
    println!("names: {}", NAMES.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" "));
    (0..3).for_each(|_| _ = COUNTER.fetch_add(1, Ordering::Relaxed));
    println!("counter: {}", COUNTER.load(Ordering::Relaxed));
    (0..7).for_each(|i| ZEROES[i * 149_796].store(1, Ordering::Relaxed));
    println!(
        "zeroes: {} bytes, {} set",
        ZEROES.len(),
        ZEROES.iter().map(|x| usize::from(x.load(Ordering::Relaxed))).sum::<usize>()
    );
    println!("once: computed {} {}", once(), if once() == 42 { "once" } else { "wrong" });
    println!("references: {} through {}", FIVE, **TO_FIVE);
    LIST.lock().unwrap().extend([1, 2, 3]);
    println!("cell: {:?}", LIST.lock().unwrap());
}
