//# arg: first
//# arg: second one
//# env: URUK_KING=Gilgamesh
//# stdin: 10
//# stdin: 32
//# stdout: arguments: ["first", "second one"]
//# stdout: environment: Gilgamesh, unset: None
//# stdout: sum of the input: 42
//# stdout: a child printed: hello from a child
//# stderr: to standard error
//# exit: 17
//! Arguments, environment, standard streams and children as the standard library sees them.

use std::io::{BufRead, Write};
use std::process::{Command, exit};

fn main() {
    println!("arguments: {:?}", std::env::args().skip(1).collect::<Vec<_>>());
    println!(
        "environment: {}, unset: {:?}",
        std::env::var("URUK_KING").unwrap(),
        std::env::var_os("NO_SUCH_NAME")
    );
    let sum: i32 = std::io::stdin().lock().lines().map(|line| line.unwrap().parse::<i32>().unwrap()).sum();
    println!("sum of the input: {sum}");
    let child = Command::new("echo").arg("hello from a child").output().unwrap();
    print!("a child printed: {}", String::from_utf8(child.stdout).unwrap());
    eprintln!("to standard error");
    std::io::stdout().flush().unwrap();
    exit(17);
}
