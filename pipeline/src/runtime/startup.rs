//! Running a program from its first initializer to `exit`.
//!
//! ```text
//!   Program::new ─▶ register_finalizers ─▶ run_initializers ─▶ run_main_and_exit
//!                          │                                         │
//!                          └── exit handler, run last: finalizers in reverse ◀── exit(main())
//! ```
//!
//! The order is that of a native process. Finalizers are registered before any program code runs, and exit
//! handlers run newest first, so they come after everything that the program registers itself.
//!
//! No lock is held and no value with a destructor matters while program code runs: it may call `exit` or end its
//! thread anywhere.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, Mutex};

use super::entry;
use super::exit::{self, ExitError};
use super::start_block::StartBlock;
use crate::arch::host;
pub use crate::executor::ArrayFunction;

/// The priority of functions in a plain `.init_array` or `.fini_array`, after all numbered ones.
pub const DEFAULT_PRIORITY: i32 = 65535;

/// A program that runs as if the process were its own.
#[derive(Debug)]
pub struct Program {
    block: StartBlock,
    finalizers: Arc<Mutex<Vec<ArrayFunction>>>,
}

impl Program {
    /// A program with these arguments, the first of which is its name, and with the environment of the moment: in a
    /// block as the system makes one (`start_block.rs`), which stays in memory for ever. To be called when the program's
    /// [image](super::image::publish) is published, if it has one.
    pub fn new(arguments: impl IntoIterator<Item = CString>) -> Self {
        let arguments: Vec<_> = arguments.into_iter().collect();
        Self { block: StartBlock::new(&arguments), finalizers: Arc::default() }
    }

    /// Has the C library take the program's environment, and name the program in its messages (`error`, `warn`, `assert`), as
    /// `argv[0]` says, and the system this thread and those that it starts. `getauxval(AT_EXECFN)` answers with that name too.
    ///
    /// Changes the whole process: for a process that is the program's alone.
    pub fn take_the_process(&self) {
        self.take_the_name();
        // SAFETY: the block's vector stays. No other thread reads the environment now, as before any `main`.
        unsafe { environ = self.block.envp };
    }

    fn take_the_name(&self) {
        if self.block.argc == 0 {
            return;
        }
        // SAFETY: `argv[0]` is a terminated string that stays; the C library's two pointers are meant to be set, and
        // threads that read them find one string or the other.
        unsafe {
            let name = *self.block.argv;
            let slash = libc::strrchr(name, c_int::from(b'/'));
            program_invocation_name = name;
            program_invocation_short_name = if slash.is_null() { name } else { slash.add(1) };
            libc::prctl(libc::PR_SET_NAME, program_invocation_short_name);
            name_what_was_executed(name);
        }
    }

    /// Gives this thread the floating-point state that a process starts with: our own work has left flags set.
    pub fn take_the_processor(&self) {
        host::start_floating_point();
    }

    /// Registers the exit handler that runs the finalizers. Call it before any program code runs, once.
    ///
    /// # Errors
    /// [`ExitError`] if the C library refuses the handler.
    pub fn register_finalizers(&self) -> Result<(), ExitError> {
        let finalizers = Arc::clone(&self.finalizers);
        exit::on_exit(move |_| run_finalizers(&finalizers))
    }

    /// Adds elements of `.fini_array`s, at any time. They run at `exit`: highest priority number first, and
    /// among equals the last one first.
    ///
    /// # Safety
    /// Each can be called as `void (void)` until the process ends.
    pub unsafe fn add_finalizers(&self, functions: impl IntoIterator<Item = ArrayFunction>) {
        let mut finalizers = self.finalizers.lock();
        finalizers.extend(functions);
        finalizers.sort_unstable();
    }

    /// Runs elements of `.init_array`s on this thread: lowest priority number first, then by unit and place.
    ///
    /// # Safety
    /// Each can be called as `void (int, char **, char **)`.
    pub unsafe fn run_initializers(&self, functions: impl IntoIterator<Item = ArrayFunction>) {
        // SAFETY: the caller's obligation; the vectors are those of a process.
        unsafe { run_in_order(functions, self.block) };
    }

    /// Runs `main` on this thread and exits with its result.
    ///
    /// # Safety
    /// `entry` can be called as `int main(int, char **, char **)`.
    pub unsafe fn run_main_and_exit(&self, entry: ExecutorAddr) -> ! {
        // SAFETY: the caller's obligation; the vectors are those of a process. `exit` may be called once no exit
        // handler is running, which holds while `main` is.
        unsafe { entry::call_main_and_exit(entry, self.block.argc, self.block.argv, environment()) }
    }

    /// The argument count and vector, as `main` gets them.
    pub const fn arguments(&self) -> (c_int, *mut *mut c_char) {
        (self.block.argc, self.block.argv)
    }
}

/// Runs elements of `.init_array`s on this thread as [`Program::run_initializers`] does, for a program that has no arguments: it
/// shares the process with its host. Its block has the environment that the host had when the first such function ran.
///
/// # Safety
/// As for [`Program::run_initializers`].
pub unsafe fn run_initializers(functions: impl IntoIterator<Item = ArrayFunction>) {
    static BLOCK: OnceLock<StartBlock> = OnceLock::new();
    // SAFETY: the caller's obligation.
    unsafe { run_in_order(functions, *BLOCK.get_or_init(|| StartBlock::new(&[]))) };
}

unsafe fn run_in_order(functions: impl IntoIterator<Item = ArrayFunction>, block: StartBlock) {
    let StartBlock { argc, argv, envp } = block;
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_unstable();
    for function in functions {
        // SAFETY: the caller's obligation.
        unsafe { entry::call_initializer(function.address, argc, argv, envp) };
    }
}

/// Gives memory that compiling left free back to the system, so that the program starts with what it needs.
///
/// # Cost
/// A walk over the C library's heaps: about a millisecond after a large compile.
pub fn give_back_free_memory() {
    // SAFETY: takes the heaps' locks one by one and touches free memory only.
    unsafe { libc::malloc_trim(0) };
}

fn run_finalizers(finalizers: &Mutex<Vec<ArrayFunction>>) {
    loop {
        // Taken one by one: a finalizer may cause others to be linked, and may call `exit`.
        let next = finalizers.lock().pop();
        let Some(function) = next else { return };
        // SAFETY: `add_finalizers` demands it.
        unsafe { entry::call_handler(function.address, 0, 0) };
    }
}

/// Changes what `getauxval(AT_EXECFN)` answers. The vector it reads lies behind the environment that the process began with.
///
/// # Safety
/// `name` is a terminated string that stays.
unsafe fn name_what_was_executed(name: *mut c_char) {
    /// Behind the vector lie the bytes that `AT_RANDOM` refers to. An environment that was moved lies elsewhere.
    const ENVIRONMENT_BYTES_MAX: usize = 16 << 20;
    let environment = environment();
    // SAFETY: these only read the vector.
    let (random, executed) =
        unsafe { (libc::getauxval(libc::AT_RANDOM) as usize, libc::getauxval(libc::AT_EXECFN)) };
    if random.checked_sub(environment.addr()).is_none_or(|bytes| bytes >= ENVIRONMENT_BYTES_MAX) {
        return;
    }
    // SAFETY: the environment is the one that the system laid out, as seen above: a null pointer ends it, pairs follow, and a
    // pair of type zero ends those. The memory is the process's own stack, above all frames, and may be written.
    unsafe {
        let mut last = environment;
        while !(*last).is_null() {
            last = last.add(1);
        }
        let mut pair = last.add(1).cast::<[libc::c_ulong; 2]>();
        while (*pair)[0] != libc::AT_NULL {
            if *pair == [libc::AT_EXECFN, executed] {
                (*pair)[1] = name.expose_provenance() as libc::c_ulong;
            }
            pair = pair.add(1);
        }
    }
}

/// The environment as the C library has it.
pub(super) fn environment() -> *mut *mut c_char {
    // SAFETY: the C library's pointer is read as `main`'s caller reads it.
    unsafe { environ }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static mut program_invocation_name: *mut c_char;
    static mut program_invocation_short_name: *mut c_char;
}
