//! [`Request`]: a lookup of one function that says how urgent it is, and until when it is wanted.

use std::fmt;

use uruk_core::{Deadline, LookupRequest, LookupSet, SymbolName, TaskPriority};

use crate::error::JitError;
use crate::function::FunctionPointer;
use crate::handle::Function;
use crate::scope::Scope;

/// A lookup of one function that has not begun. Made by [`Scope::request`].
///
/// # Examples
/// A runtime that interprets until code is there:
/// ```
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), uruk::JitError> {
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use uruk::core::{Deadline, TaskPriority};
///
/// # let jit = uruk::Jit::builder().threads(1).build()?;
/// jit.add_ir_text("f.ll", "define i64 @f() { ret i64 42 }")?;
/// let (compiled, code) = channel();
/// let request = jit.request("f").at(TaskPriority::Speculative).until(Deadline::after(Duration::from_secs(60)));
/// // SAFETY: that is the function's signature.
/// unsafe {
///     request.then(move |f: Result<uruk::Function<extern "C" fn() -> i64>, _>| {
///         let _ = compiled.send(f); // The runtime may have ended.
///     });
/// }
/// let f = code.recv().expect("it is answered")?;
/// assert_eq!(f(), 42);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is asked to"]
pub struct Request {
    pub(crate) scope: Scope,
    pub(crate) symbol: SymbolName,
    priority: Option<TaskPriority>,
    deadline: Option<Deadline>,
}

impl Scope {
    /// A lookup of a function that may say how urgent it is, and until when it is wanted.
    pub fn request(&self, symbol: &str) -> Request {
        Request { scope: self.clone(), symbol: self.intern(symbol), priority: None, deadline: None }
    }
}

impl Request {
    /// As urgent as `priority`, and no more.
    pub fn at(mut self, priority: TaskPriority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Wanted until `deadline`. Work for it alone that has not begun by then is put back.
    pub fn until(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Waits for the function, as [`Scope::get`] does.
    ///
    /// # Safety
    /// As [`Scope::get`].
    ///
    /// # Errors
    /// As [`Scope::get`]; [`LookupError::DeadlineExceeded`](uruk_core::LookupError::DeadlineExceeded), and
    /// [`LookupError::Overloaded`](uruk_core::LookupError::Overloaded) for speculative and idle work of which there is as much as may be.
    pub unsafe fn get<F: FunctionPointer>(self) -> Result<Function<F>, JitError> {
        loop {
            let found = self.scope.session().lookup(self.lookup());
            let found = found.map_err(|error| self.scope.told(error))?;
            // SAFETY: the caller's promise.
            if let Some(function) = unsafe { self.scope.function_of(&self.symbol, &found) }? {
                return Ok(function);
            }
        }
    }

    /// Starts the lookup, and calls `then` once with its answer.
    ///
    /// # Concurrency
    /// Does not block. `then` runs as a task of the dispatcher and under no lock; without compile threads it may run inside this call. No
    /// timer watches the deadline: a late answer comes when it comes.
    ///
    /// # Safety
    /// As [`Scope::get`].
    ///
    /// # Errors
    /// `then` is given those of [`Request::get`].
    pub unsafe fn then<F: FunctionPointer + 'static>(
        self,
        then: impl FnOnce(Result<Function<F>, JitError>) + Send + 'static,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.answer(Box::new(then)) };
    }

    /// # Safety
    /// As [`Request::then`].
    unsafe fn answer<F: FunctionPointer + 'static>(self, then: Then<F>) {
        let session = self.scope.session().clone();
        session.lookup_async(self.lookup(), move |found| {
            let found = found.map_err(|error| self.scope.told(error));
            // SAFETY: the caller's promise.
            let function = found.and_then(|found| unsafe { self.scope.function_of(&self.symbol, &found) });
            match function.transpose() {
                Some(answer) => then(answer),
                // SAFETY: the caller's promise. It was removed meanwhile.
                None => unsafe { self.answer(then) },
            }
        });
    }

    fn lookup(&self) -> LookupRequest {
        let mut request = LookupRequest::new(self.scope.order(), LookupSet::required([self.symbol.clone()]));
        (request.priority, request.deadline) = (self.priority, self.deadline);
        request
    }
}

type Then<F> = Box<dyn FnOnce(Result<Function<F>, JitError>) + Send>;

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("symbol", &self.symbol.as_str()).finish_non_exhaustive()
    }
}
