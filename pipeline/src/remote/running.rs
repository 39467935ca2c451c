//! Runs what the host has linked: constructors, functions, the program.
//!
//! The host says what is where. A host that is mistaken has this process crash, which is what the process is for.

use std::ffi::CString;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::asking::HostNames;
use super::last_thread::exit_with_the_last_thread;
use super::messages::{FunctionCall, ProgramRun, StartLists};
use super::program_names::NamedThere;
use super::published::PublishedTable;
use crate::executor::ArrayFunction;
use crate::runtime::entry::CallRegisters;
use crate::runtime::exit::ExitError;
use crate::runtime::process::{ProcessSymbols, set_program_symbols};
use crate::runtime::startup::{self, Program};
use crate::runtime::{allocation, endings, entry, ifunc, image, tls};

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

/// The things around a program in this process.
pub(super) struct ProgramGround {
    pub(super) table: Arc<PublishedTable>,
    pub(super) symbols: Arc<ProcessSymbols>,
    pub(super) names: Arc<HostNames>,
}

/// Becomes the program: returns only if it cannot begin.
pub(super) fn run(run: ProgramRun, ground: &ProgramGround) -> ExitError {
    let ProgramRun { lists, entry, header, arguments } = run;
    if let Some(header) = header {
        let table = ground.table.clone();
        image::publish(ExecutorAddr::new(header), Arc::new(move || table.mapped()));
    }
    // An argument ends at a zero byte. The host has none.
    let arguments = arguments.into_iter().map(|argument| CString::new(argument).unwrap_or_default());
    let program: &'static Program = Box::leak(Box::new(Program::new(arguments))); // needed to the end
    program.take_the_process();
    if let Err(error) = program.register_finalizers().and_then(|()| exit_with_the_last_thread()) {
        return error;
    }
    let names = ground.names.clone();
    set_program_symbols(Arc::new(move |name| {
        let NamedThere { found, lists } = names.find(name.to_str().ok()?);
        start_what_is_new(program, lists, None);
        let found = ExecutorSymbolDef::from(found?);
        if found.flags.contains(SymbolFlags::THREAD_LOCAL) {
            // SAFETY: that is what the address of such a symbol is, and nothing of a program is retired.
            return Some(unsafe { tls::address_on_this_thread(found.address) });
        }
        Some(found.address)
    }));
    tls::touch_modules();
    program.take_the_processor();
    allocate_by_libraries(&ground.symbols);
    start_what_is_new(program, lists, Some(&ground.symbols));
    // SAFETY: the entry is what the user says is a `main`, and nothing is retired while the program runs.
    unsafe { program.run_main_and_exit(ExecutorAddr::new(entry)) }
}

/// Lets all code allocate by the functions of a library that was loaded for the program, if one has them and this executable can lead there.
fn allocate_by_libraries(symbols: &ProcessSymbols) {
    if allocation::has_forwarders() {
        // SAFETY: the executable has the forwarders. A library's definition of such a name has the function's type, and no library goes. Threads
        // of ours allocate by the engine's allocator, which never goes through the forwarders, and the program does not run yet. Where that is
        // refused, the functions stay those of the process.
        let _ = unsafe { allocation::replace(|name| symbols.function_of_libraries(name)) };
    }
}

/// Runs the constructors of a program's new code, behind those of the libraries, and notes its destructors.
fn start_what_is_new(program: &Program, lists: StartLists, libraries: Option<&ProcessSymbols>) {
    let StartLists { indirect, initializers, finalizers } = lists;
    // SAFETY: as in `start`; those of libraries were found in the arrays of these.
    unsafe {
        indirect.into_iter().for_each(|descriptor| ifunc::bind(ExecutorAddr::new(descriptor)));
        program.add_finalizers(finalizers.into_iter().map(ArrayFunction::from));
        if let Some(libraries) = libraries {
            libraries.begin_libraries(|constructors| program.run_initializers(constructors));
        }
        program.run_initializers(initializers.into_iter().map(ArrayFunction::from));
    }
}
