//! [`Jit`]: the engine behind one type.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use uruk_core::sync::Arc;
use uruk_core::{CloseError, Deadline, ExecutorAddr, JitDylib, Shutdown};
use uruk_pipeline::debug::{self, SymbolAt};
use uruk_pipeline::lazy::Speculator;
use uruk_pipeline::linking::LowAddresses;
use uruk_pipeline::memory::MemoryUsage;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::process::ProcessSymbols;

use crate::engine::Engine;
use crate::scope::Scope;

/// A program in this process: files go in, functions come out.
///
/// Definitions live in one dylib, [`Jit::main_dylib`]. References are searched there first, then in the C
/// and C++ libraries and in every other library that was loaded.
///
/// A `Jit` is the [`Scope`] of that dylib, whose methods add files and look symbols up. Other scopes are dylibs and trackers of the same engine.
/// Its own methods concern the whole engine. When it is dropped, the engine ends.
///
/// # Concurrency
/// Every method may be called from any thread.
///
/// # Examples
/// ```
/// use uruk::prelude::*;
///
/// # fn main() -> Result<(), JitError> {
/// let jit = Jit::new()?;
/// # #[cfg(feature = "llvm")] {
/// jit.add_ir_text("twice.ll", "define i64 @twice(i64 %x) { %y = add i64 %x, %x ret i64 %y }")?;
/// // SAFETY: that is the function's signature.
/// let twice = unsafe { jit.get::<extern "C" fn(i64) -> i64>("twice")? };
/// assert_eq!(twice(21), 42);
/// # }
/// # Ok(())
/// # }
/// ```
///
/// ORC: `LLJIT`.
#[doc(alias = "LLJIT")]
pub struct Jit {
    /// The scope of the main dylib.
    main: Scope,
    /// [`Jit::shutdown`] has ended it.
    is_shut: bool,
}

impl Jit {
    /// An engine that is set up, with its main dylib.
    pub(crate) fn of(engine: Engine, main: JitDylib) -> Self {
        Self { main: Scope::new(Arc::new(engine), main), is_shut: false }
    }

    /// The dylib that files are added to, and that [`Jit::link`] links.
    #[doc(alias = "getMainJITDylib")]
    pub fn main_dylib(&self) -> &JitDylib {
        self.dylib()
    }

    /// Initialisers and finalisers of what was linked, for who runs them himself instead of by [`Scope::initialize`].
    pub fn platform(&self) -> &Platform {
        &self.engine.files.platform
    }

    /// The symbols found outside of the program.
    pub fn process_symbols(&self) -> &ProcessSymbols {
        &self.engine.files.process
    }

    /// Entries below 2 GiB for functions and variables of libraries, where objects without position-independent
    /// code need it there.
    pub fn low_addresses(&self) -> &LowAddresses {
        self.engine.files.linking.layer.low_addresses()
    }

    /// The tiers of the engine, if [`JitBuilder::tiers`](crate::JitBuilder::tiers) has asked for some: what was compiled in each, and how to
    /// end it.
    #[cfg(feature = "llvm")]
    pub fn tiers(&self) -> Option<&uruk_pipeline::tiers::Tiers> {
        self.engine.files.modules.tiers.as_ref().map(|(_, tiers)| tiers)
    }

    /// The IR that compilers keep while a page is open.
    #[cfg(all(feature = "llvm", feature = "dashboard"))]
    pub(crate) fn kept_ir(&self) -> &uruk_pipeline::ir::KeptIr {
        self.engine.files.modules.layer.compiler().kept()
    }

    /// In which order lazy functions were first called, and who compiles some of them ahead: in the order of an earlier run, for example. The
    /// workers do that when no lookup waits for anything else. If there are none, or the process is
    /// [the program's](crate::JitBuilder::owns_process), a thread that is started for it does.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// let run = |order: Option<&uruk::pipeline::lazy::CallOrder>| {
    ///     let jit = uruk::Jit::builder().threads(1).compile_on_call(uruk::OnCall::Function).build()?;
    ///     jit.add_ir_text("main.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    ///     // SAFETY: `next` takes and gives a 64-bit integer.
    ///     let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?;
    ///     if let Some(order) = order {
    ///         assert_eq!(jit.speculator().speculate(order), 0); // All of it is known.
    ///     }
    ///     assert_eq!(next(41), 42);
    ///     Ok::<_, uruk::JitError>(jit.speculator().first_calls())
    /// };
    /// let order = run(None)?;
    /// assert_eq!(&*order.functions[0].function, "next");
    /// assert_eq!(run(Some(&order))?, order);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn speculator(&self) -> &Speculator {
        self.engine.files.linking.lazy.speculator()
    }

    /// The symbol at an address of linked code, its unit and dylib, and the place in the source where the object has DWARF that says so.
    /// `None` if there is none, or if the code has been removed.
    ///
    /// Code of every engine of the process is found: addresses are the process's.
    ///
    /// # Concurrency
    /// Callable from any thread, but not from a signal handler.
    ///
    /// # Cost
    /// Linear in the symbols of the object. With DWARF, which is relocated and read anew each time, milliseconds for a large object.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # #[cfg(feature = "llvm")] {
    /// let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.add_ir_text("next.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// let next = jit.lookup("next")?.address;
    /// let found = jit.symbol_at(next.offset(1)).expect("the code is there");
    /// assert_eq!((&*found.symbol, found.offset, &*found.unit), ("next", 1, "next.ll"));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "addr2line")]
    pub fn symbol_at(&self, address: ExecutorAddr) -> Option<SymbolAt> {
        debug::symbol_at(address)
    }

    /// How much memory the linked code takes, in bytes by kind.
    ///
    /// # Cost
    /// A system call for each 64 MiB that is mapped, to learn what of it is resident; a thread that allocates memory for code waits for it.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.engine.memory.usage()
    }

    /// Ends the engine as its drop does, with a choice of what becomes of its work, and of how long to wait.
    ///
    /// First it runs what is left for the end ([`Scope::initialize`]). Then the work that was asked for is finished with [`Shutdown::Drain`], or given up with
    /// [`Shutdown::Cancel`], as far as it has not started. Last it removes all code. `within` limits how long this waits for work that runs.
    ///
    /// # Concurrency
    /// The limit does not interrupt code of the program that runs at its end, nor one function that is compiled
    /// [ahead](Jit::speculator) or [again](crate::JitBuilder::tiers).
    ///
    /// # Errors
    /// [`CloseError::TimedOut`] when the time is over: what has not started is cancelled, and what runs ends by itself. All code is
    /// removed after that, by a thread of its own. [`CloseError::Wait`] on a thread that may not wait: the session is left open and its work goes
    /// on; the last handle frees it. [`CloseError::Resources`] if something could not be removed.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use uruk::core::{CloseError, Shutdown};
    ///
    /// let jit = uruk::Jit::builder().threads(1).build()?;
    /// match jit.shutdown(Shutdown::Drain, Some(Duration::from_secs(2))) {
    ///     Ok(()) => {}
    ///     Err(CloseError::TimedOut) => eprintln!("a compilation is still at work"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown(mut self, shutdown: Shutdown, within: Option<Duration>) -> Result<(), CloseError> {
        self.is_shut = true;
        self.end_with(shutdown, within.map(Deadline::after))
    }

    fn end_with(&self, shutdown: Shutdown, deadline: Option<Deadline>) -> Result<(), CloseError> {
        self.speculator().stop_and_wait();
        #[cfg(feature = "llvm")]
        if let Some(tiers) = self.tiers() {
            tiers.stop_and_wait();
        }
        self.end();
        let closed = match deadline {
            None => self.engine.session.close_with(shutdown),
            Some(deadline) => self.engine.session.close_until(shutdown, deadline),
        };
        #[cfg(feature = "cache")]
        self.flush_cache();
        closed
    }
}

impl Deref for Jit {
    type Target = Scope;

    /// The scope of the main dylib.
    fn deref(&self) -> &Scope {
        &self.main
    }
}

impl Drop for Jit {
    /// Runs what is left for the end ([`Scope::initialize`]) and closes the session: compilations that run end, work that has not started
    /// is given up, code is unmapped. Compiled code goes to the cache. Scopes that are left answer with errors. [`Jit::shutdown`] can finish
    /// the work instead, and limit the wait.
    fn drop(&mut self) {
        if !self.is_shut {
            // Errors of resources have been reported to the session's error reporter already. A thread that may not wait (it holds a
            // context, or runs a leaf) leaves the session open: its work ends by itself, and the last handle frees all of it.
            let _ = self.end_with(Shutdown::Cancel, None);
        }
    }
}

impl fmt::Debug for Jit {
    /// A few lines, independent of the engine's contents: hosts put it into their own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit")
            .field("main_dylib", &self.dylib().name())
            .field("dispatcher", &format_args!("{:?}", self.engine.session.dispatcher()))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use uruk_core::{ExecutorSymbolDef, LookupError, WaitError, WithCauses};
    use uruk_pipeline::ir::{JitTargetMachineBuilder, ModuleInterface, OptimizationLevel, ThreadSafeModule};
    use uruk_pipeline::object::ObjectBuffer;

    use super::*;
    use crate::error::JitError;

    fn told(error: &JitError) -> String {
        WithCauses(error).to_string()
    }

    #[test]
    fn an_engine_is_shown_in_a_few_lines() {
        let jit = Jit::builder().threads(2).build().expect("an engine for this machine");
        let shown = format!("{jit:?}");
        assert!(shown.contains("WorkStealingTaskDispatcher") && shown.len() < 500, "{shown}");
    }

    #[test]
    fn a_lookup_that_would_wait_while_the_thread_holds_a_context_is_refused() {
        let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
        jit.add_ir_text("answer.ll", "define i32 @answer() { ret i32 42 }").expect("the module is valid");
        let module = ThreadSafeModule::new(&uruk_pipeline::ir::ThreadSafeContext::new(), "held");
        let refused = module.with_module(|_| jit.lookup("answer")).expect("the context is sound");
        assert!(
            matches!(refused, Err(JitError::Lookup(LookupError::Wait(WaitError::Holding { .. })))),
            "{refused:?}"
        );
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(message.contains("an LLVM context, taken at src/jit.rs:"), "{message}");
        assert!(jit.lookup("answer").is_ok());
        // A symbol that is Ready already is answered without a wait.
        let ready = module.with_module(|_| jit.lookup("answer")).expect("the context is sound");
        assert!(ready.is_ok());
    }

    #[test]
    fn a_module_whose_interface_is_known_is_read_when_it_is_wanted() {
        let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
        let target = JitTargetMachineBuilder::host().expect("host target");
        let source = |name: &str, text: &str| ObjectBuffer::new(name, text.as_bytes().to_vec());
        let text = source("sound.ll", "define i32 @sound() { ret i32 42 }");
        let bitcode =
            ThreadSafeModule::parse(&text).and_then(|module| module.to_bitcode()).expect("valid IR");
        let interface = ModuleInterface::of_bitcode(&bitcode, &target).expect("valid bitcode");
        jit.add_ir_with_interface(bitcode, &interface).expect("the name is new");
        // SAFETY: the function has this signature, and the engine outlives the call.
        let sound: extern "C" fn() -> i32 = unsafe { jit.function("sound") }.expect("compiles");
        assert_eq!(sound(), 42);

        let named = |name: &str| {
            let mut renamed = interface.clone();
            renamed.symbols[0].name = name.into();
            renamed
        };
        let damaged = source("damaged.ll", "define i32 @damaged(");
        jit.add_ir_with_interface(damaged, &named("damaged")).expect("nobody has looked at the source");
        let error = told(&jit.lookup("damaged").expect_err("the source is no module"));
        assert!(error.contains("damaged.ll"), "{error}");
        let other = source("other.ll", "define i32 @other() { ret i32 1 }");
        jit.add_ir_with_interface(other, &named("promised")).expect("the name is new");
        let error = told(&jit.lookup("promised").expect_err("the module does not define it"));
        assert!(error.contains("promised"), "{error}");
    }

    #[test]
    fn the_verifier_runs_unless_told_otherwise() {
        // Against the rules, and harmless.
        let contradiction = "define i32 @answer() alwaysinline noinline { ret i32 42 }";
        let lookup = |jit: Result<Jit, JitError>| -> Result<ExecutorSymbolDef, JitError> {
            let text = ObjectBuffer::new("answer.ll", contradiction.as_bytes().to_vec());
            let bitcode = ThreadSafeModule::parse_unverified(&text)?.to_bitcode()?;
            let jit = jit?;
            jit.add_ir(bitcode)?;
            jit.lookup("answer")
        };
        let builder = || Jit::builder().threads(1).optimization(OptimizationLevel::O0);
        let refused = told(&lookup(builder().build()).expect_err("the module breaks a rule"));
        assert!(refused.contains("incompatible"), "{refused}");
        assert!(lookup(builder().verify_ir(false).build()).is_ok());
    }
}
