//# signal: 6
//# compare: stdout
//# stderr: first
//# stderr: second
//# stderr: thread caused non-unwinding panic. aborting.
//! A panic in a destructor that runs because of a panic aborts.

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("second");
    }
}

fn main() {
    let _bomb = Bomb;
    panic!("first");
}
