//# exit: 101
//# stdout: before
//# stdout: dropped while unwinding
//# stderr: panicked at
//# stderr: called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }
//! An uncaught panic unwinds main, prints its message, and ends the process with 101.

struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        println!("dropped while unwinding");
    }
}

fn main() {
    let _loud = Loud;
    println!("before");
    let number: i32 = std::hint::black_box("not a number").parse().unwrap();
    println!("never {number}");
}
