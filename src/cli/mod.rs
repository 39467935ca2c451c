//! The `uruk` command: arguments in, a running program out.

mod args;
mod background;
mod cache;
mod clang;
mod defect;
mod dispatcher;
mod examples;
mod executor;
mod flight;
mod helpers;
mod hints;
mod image;
mod image_args;
mod memory_limit;
mod observe;
mod opt;
mod order;
mod package;
mod page;
mod passes;
mod perf;
mod precompile;
mod profile;
mod progress;
mod record;
mod repl;
mod replaced;
mod report;
mod run;
mod shared;
mod stats;
mod stats_report;
mod tier_table;
mod top;
mod unit_counts;
mod units;
mod values;
mod verbose;
mod why_after;

use std::ffi::c_int;

use args::{Cli, Command, RunArgs};
use image_args::ImageCommand;

/// Exit code when a program cannot be made to run.
const FAILURE: c_int = 1;

/// Exit code when the command line is wrong, as the parser has it.
const WRONG_USAGE: c_int = 2;

/// Does what the command line says. Returns only when there is no program to run: a program that runs
/// ends the process itself.
pub(crate) fn main() -> c_int {
    defect::tell_panics();
    defect::guard(run_command).unwrap_or(defect::DEFECT)
}

fn run_command() -> c_int {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to say if the terminal is gone.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match cli.command {
        Command::CompileHelper => done(uruk::pipeline::ir::serve_compiles()),
        Command::Executor => done(uruk::pipeline::remote::serve_executor()),
        Command::Run(args) => run_program(&args),
        Command::Image(args) => match args.command {
            ImageCommand::Run(args) => run_program(&args),
            ImageCommand::Build(args) => imaged(image::build(&args)),
            ImageCommand::Info(args) => imaged(image::info(&args)),
            ImageCommand::Verify(args) => imaged(image::verify(&args)),
        },
        Command::Precompile(args) => done(precompile::precompile(&args)),
        Command::Opt(args) => done(opt::opt(&args)),
        Command::Page(args) => done(page::page(&args)),
        Command::Trace(args) => done(record::trace(&args)),
        Command::Top(args) => done(top::top(&args)),
        Command::Repl(args) => repl::repl(&args).unwrap_or_else(|error| failure(&error)),
        Command::Cache(args) => cache::cache(&args).unwrap_or_else(|error| failure(&error)),
    }
}

/// Returns only if there is no program to run, or if another process has run it.
fn run_program(args: &RunArgs) -> c_int {
    match run::run(args) {
        Ok(code) => code,
        Err(error) => {
            report::error(&error);
            if error.is_wrong_usage() { WRONG_USAGE } else { FAILURE }
        }
    }
}

fn imaged(outcome: Result<(), image::ImageCommandError>) -> c_int {
    match outcome {
        Err(error) if error.is_wrong_usage() => {
            report::error(&error);
            WRONG_USAGE
        }
        outcome => done(outcome),
    }
}

fn done<E: std::error::Error + 'static>(outcome: Result<(), E>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => failure(&error),
    }
}

fn failure(error: &(dyn std::error::Error + 'static)) -> c_int {
    report::error(error);
    FAILURE
}
