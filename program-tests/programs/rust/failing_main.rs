//# exit: 1
//# stdout: opened nothing
//# stderr: Error: MissingTablet { number: 12 }
//! main may return an error.

#[derive(Debug)]
#[expect(dead_code, reason = "read by the derived Debug alone")]
struct MissingTablet {
    number: u32,
}

fn main() -> Result<(), MissingTablet> {
    println!("opened nothing");
    Err(MissingTablet { number: 12 })
}
