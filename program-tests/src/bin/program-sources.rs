//! Prints where a program source lies: `program-sources sqlite` its directory, `program-sources sqlite --files` its
//! files, one a line, `program-sources sqlite --flags` the flags its build needs, one a line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use uruk_tests::sources::ProgramSource;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match answer(&arguments) {
        Ok(lines) => {
            let written = writeln!(std::io::stdout(), "{}", lines.join("\n"));
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            // A closed stderr has no reader; the exit code still does.
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &[String]) -> Result<Vec<String>, String> {
    let (name, what) = match arguments {
        [name] => (name, None),
        [name, what] => (name, Some(what.as_str())),
        _ => return Err(usage()),
    };
    let source = ProgramSource::by_name(name).ok_or_else(usage)?;
    let library = source.locate().map_err(|error| error.to_string())?;
    let lines = |paths: Vec<PathBuf>| paths.into_iter().map(|path| path.display().to_string()).collect();
    match what {
        None => Ok(lines(vec![library.directory])),
        Some("--files") => Ok(lines(library.files)),
        Some("--flags") => Ok(library.flags),
        Some(_) => Err(usage()),
    }
}

fn usage() -> String {
    let names: Vec<&str> = ProgramSource::ALL.iter().map(|source| source.name()).collect();
    format!("usage: program-sources NAME [--files | --flags], where NAME is one of: {}", names.join(", "))
}
