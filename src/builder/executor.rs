//! Another process that runs the code, as a choice of the builder.

use uruk_core::SymbolFlags;
use uruk_pipeline::remote::{CallArguments, CallResult, RemoteExecutor, RemoteProgram};

use super::JitBuilder;
use crate::error::JitError;
use crate::jit::Jit;
use crate::scope::Scope;

impl JitBuilder {
    /// Has the code run in a process that is started for it, so that code that crashes, or exits, ends that process and not this one.
    ///
    /// Symbols outside of the program are those of that process: [`process_symbols`](Self::process_symbols) has no effect. Functions of linked code
    /// are called by [`Scope::call_there`]. No pointer to code or data is handed out here, and code there calls no function of this process.
    /// [`build`](Self::build) refuses [`memory`](Self::memory) of one's own. [`debugger`](Self::debugger) and [`perf`](Self::perf) are those of that process. Images are refused when they are loaded, and objects that were
    /// built for an executable at a fixed place when they are linked.
    ///
    /// Functions that are compiled when they are called are compiled here, each on a thread of its own, while the thread there waits. A child that the
    /// program forks there cannot have them.
    ///
    /// When the process has ended, every call and every link fails with the reason. A new engine goes on with another process.
    ///
    /// # Cost
    /// A few milliseconds for the start. Objects are written through shared memory, and none waits for a message.
    ///
    /// # Examples
    /// ```no_run
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// use uruk::pipeline::remote::RemoteProgram;
    ///
    /// let program = RemoteProgram::new("/usr/local/bin/uruk").argument("executor");
    /// let jit = uruk::Jit::builder().executor(program).build()?;
    /// jit.add_ir_text("crash.ll", "define i64 @crash() { %x = load volatile i64, ptr null ret i64 %x }")?;
    /// assert!(jit.call_there::<i64>("crash", ()).is_err()); // It says: SIGSEGV, in `crash`.
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    ///
    /// ORC: `LLJITBuilder::setExecutorProcessControl`.
    #[must_use]
    #[doc(alias = "setExecutorProcessControl")]
    pub fn executor(mut self, program: RemoteProgram) -> Self {
        self.engine.executor = Some(program);
        self
    }

    /// # Errors
    /// [`JitError::NotThere`] for the first choice that another process cannot have.
    pub(super) fn check_executor(&self) -> Result<(), JitError> {
        if self.engine.executor.is_none() {
            return Ok(());
        }
        let choices = [
            (self.engine.memory.is_some(), "memory of the embedder's"),
            (self.engine.collected.is_some(), "making an image"),
        ];
        match choices.iter().find(|(is_chosen, _)| *is_chosen) {
            Some((_, what)) => Err(JitError::NotThere { what: (*what).into() }),
            None => Ok(()),
        }
    }
}

impl Jit {
    /// The process that runs the code, if that is [another one](JitBuilder::executor).
    pub fn executor(&self) -> Option<&RemoteExecutor> {
        self.engine.remote.as_ref().map(|remote| &remote.executor)
    }
}

impl Scope {
    /// Looks up a function and calls it in the process that [runs the code](JitBuilder::executor), with up to eight numbers, at most six of them
    /// integers, `bool`s or addresses of that process. Gives its result.
    ///
    /// Types are not checked. With wrong ones, arguments and result are meaningless, and the function may crash in its process. A function with variable
    /// arguments takes an `f64` where C has a `float`.
    ///
    /// # Concurrency
    /// Calls of all threads run one after another, on the first thread there. Blocks until the function returns.
    ///
    /// # Errors
    /// As [`Scope::lookup`]; [`JitError::NotCallable`] if the symbol is data; [`JitError::Remote`] if the process ended before the function returned;
    /// [`JitError::NotThere`] if this process runs the code.
    ///
    /// # Examples
    /// ```no_run
    /// # fn call(jit: &uruk::Jit) -> Result<(), uruk::JitError> {
    /// let area: f64 = jit.call_there("area", (2.5, 4.0))?;
    /// let is_prime: bool = jit.call_there("is_prime", (97_u64,))?;
    /// jit.call_there::<()>("report", ())?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "callSPSWrapper")]
    pub fn call_there<R: CallResult>(
        &self,
        symbol: &str,
        arguments: impl CallArguments,
    ) -> Result<R, JitError> {
        let Some(remote) = &self.engine.remote else {
            return Err(JitError::NotThere {
                what: "a call where this process runs the code, and not another one,".into(),
            });
        };
        let found = self.lookup(symbol)?;
        if !found.flags.contains(SymbolFlags::CALLABLE) {
            return Err(JitError::NotCallable { symbol: symbol.into() });
        }
        Ok(remote.executor.call(found.address, arguments)?)
    }
}
