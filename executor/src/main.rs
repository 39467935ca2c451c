//! `uruk-executor`: runs the code of a host that compiles and links it.
//!
//! ```text
//!   uruk-executor --listen ADDR    a process for each host that connects: `uruk run --executor=ADDR`
//!   uruk-executor                  started by a host, with a channel as its stdin
//! ```

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use uruk_pipeline::peer::PeerProgram;
use uruk_pipeline::remote::{ExecutorAddress, ExecutorListener, serve_executor};

const HELP: &str = "\
Runs code that `uruk run --executor=ADDR` compiles and links, a process for each program.

Usage: uruk-executor --listen ADDR [--count N]

      --listen ADDR  unix:PATH, a socket for the user who starts this; or HOST:PORT
      --count N      serves so many hosts at a time, and refuses others; 64 without it
      --version      the version, which a host has to have too
      --help         this text

All who can connect have their code run, with the rights of this process. There is no check of
who they are, and nothing is encrypted. All users of a machine can connect to localhost:PORT.

A program has the directory, the environment and the libraries of this process. On a socket its
input and output are those of the host; on a port they are those of this process, without input.
Without arguments this is what a host starts.
";

// Room for variables that code reaches at a fixed distance from the thread pointer, as compilers make it for executables.
#[cfg(target_arch = "x86_64")]
uruk_pipeline::export_tls_reserve!();

/// The exit code of a command that was not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    #[cfg(target_arch = "x86_64")]
    offer_tls_reserve(); // without it the host refuses such code
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let texts: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    let done = match texts.as_deref() {
        Some([]) => serve_executor(),
        Some(["--help"]) => io::stdout().write_all(HELP.as_bytes()),
        Some(["--version"]) => writeln!(io::stdout(), "uruk-executor {}", env!("CARGO_PKG_VERSION")),
        Some(["--listen", address, rest @ ..]) => match (address.parse(), count(rest)) {
            (Ok(address), Some(count)) => listen(&address, count),
            (Err(error), _) => return refused(&error.to_string()),
            (_, None) => return refused("--count needs a number that is not zero; see --help"),
        },
        _ => return refused("the arguments are not understood; see --help"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// How many hosts are served at a time, if the arguments say it; nothing if they say something else.
fn count(arguments: &[&str]) -> Option<Option<NonZeroUsize>> {
    match arguments {
        [] => Some(None),
        ["--count", count] => count.parse().ok().map(Some),
        _ => None,
    }
}

/// Has a process serve each host, and tells where they may connect.
fn listen(address: &ExecutorAddress, count: Option<NonZeroUsize>) -> io::Result<()> {
    let listener = ExecutorListener::bind(address)?;
    let listener = count.into_iter().fold(listener, |listener, count| listener.count(count.get()));
    writeln!(io::stdout(), "listening at {}", listener.address()?)?;
    // The file that runs, also when an update has put another one in its place.
    listener.serve(&PeerProgram { path: "/proc/self/exe".into(), arguments: Vec::new() })
}

fn refused(why: &str) -> ExitCode {
    say(why);
    ExitCode::from(USAGE)
}

fn say(error: &str) {
    // Nothing is left to do where stderr is closed.
    let _ = writeln!(io::stderr(), "uruk-executor: {error}");
}
