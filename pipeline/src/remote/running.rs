//! Runs what the host has linked: constructors, functions, the program.
//!
//! The host says what is where. A host that is mistaken has this process crash, which is what the process is for.

use std::ffi::CString;

use uruk_core::ExecutorAddr;

use super::last_thread::exit_with_the_last_thread;
use super::messages::{FunctionCall, ProgramRun, StartLists};
use super::published::PublishedTable;
use crate::executor::ArrayFunction;
use crate::runtime::entry::CallRegisters;
use crate::runtime::exit::ExitError;
use crate::runtime::startup::{self, Program};
use crate::runtime::{endings, entry, ifunc, tls};

/// Calls a function.
pub(super) fn call(call: FunctionCall) -> (u64, u64) {
    let FunctionCall { function, integers, floats } = call;
    let mut registers = CallRegisters { integers, floats };
    // SAFETY: the host asks for a function that it has published, or found here, and vouches for its arguments.
    unsafe { entry::call_function(ExecutorAddr::new(function), &mut registers) };
    (registers.integers[0], registers.floats[0])
}

/// Runs constructors, and notes destructors for the end of their code.
pub(super) fn start(lists: StartLists, table: &PublishedTable) {
    let StartLists { indirect, initializers, finalizers } = lists;
    let finalizers = finalizers.into_iter().map(ArrayFunction::from);
    let finalizers: Vec<_> = finalizers.map(|function| (table.at(function.address), function)).collect();
    // SAFETY: the host has found these in the arrays that the compiler made for this purpose, of code that it has published with all that it
    // needs.
    unsafe {
        indirect.into_iter().for_each(|descriptor| ifunc::bind(ExecutorAddr::new(descriptor)));
        endings::add_finalizers(finalizers);
        startup::run_initializers(initializers.into_iter().map(ArrayFunction::from));
    }
}

/// Becomes the program: returns only if it cannot begin.
pub(super) fn run(run: ProgramRun) -> ExitError {
    let ProgramRun { lists: StartLists { indirect, initializers, finalizers }, entry, arguments } = run;
    // An argument ends at a zero byte. The host has none.
    let arguments = arguments.into_iter().map(|argument| CString::new(argument).unwrap_or_default());
    let program: &'static Program = Box::leak(Box::new(Program::new(arguments))); // needed to the end
    program.take_the_name();
    if let Err(error) = program.register_finalizers().and_then(|()| exit_with_the_last_thread()) {
        return error;
    }
    tls::touch_modules();
    program.take_the_processor();
    // SAFETY: as in `start`; the entry is what the user says is a `main`, and nothing is retired while the program runs.
    unsafe {
        indirect.into_iter().for_each(|descriptor| ifunc::bind(ExecutorAddr::new(descriptor)));
        program.add_finalizers(finalizers.into_iter().map(ArrayFunction::from));
        program.run_initializers(initializers.into_iter().map(ArrayFunction::from));
        program.run_main_and_exit(ExecutorAddr::new(entry))
    }
}
