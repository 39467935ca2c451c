//! [`PassHook`]: code of the host's that runs between LLVM's passes.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use inkwell::module::Module;
use inkwell::values::FunctionValue;
use llvm_sys::prelude::LLVMValueRef;

use super::error::CompileError;
use super::module::LockedModule;
use super::progress;

/// Where LLVM's own pipelines let others in, besides between stages.
///
/// LLVM: `PassBuilder::register…EPCallback`; their documentation says what runs before and after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    /// Before everything else.
    PipelineStart,
    /// Before the module is simplified.
    PipelineEarlySimplification,
    /// Behind each run of the instruction combiner. Sees a function.
    Peephole,
    /// Among the last passes over loops. Sees a function, and must keep its loops as they are.
    LateLoopOptimizations,
    /// Behind the passes over loops. As [`Self::LateLoopOptimizations`].
    LoopOptimizerEnd,
    /// Behind most scalar optimization. Sees a function.
    ScalarOptimizerLate,
    /// Behind the passes over a part of the call graph. Sees its functions one by one, and must not change them.
    CgsccOptimizerLate,
    /// Before what each function gets by itself.
    OptimizerEarly,
    /// Before vectorization. Sees a function.
    VectorizerStart,
    /// Behind vectorization. Sees a function.
    VectorizerEnd,
    /// Behind nearly everything.
    OptimizerLast,
}

impl ExtensionPoint {
    /// All points. The shim has the same order.
    pub const ALL: [Self; 11] = [
        Self::PipelineStart,
        Self::PipelineEarlySimplification,
        Self::Peephole,
        Self::LateLoopOptimizations,
        Self::LoopOptimizerEnd,
        Self::ScalarOptimizerLate,
        Self::CgsccOptimizerLate,
        Self::OptimizerEarly,
        Self::VectorizerStart,
        Self::VectorizerEnd,
        Self::OptimizerLast,
    ];
}

/// The place in the pipeline where a hook runs: the hook may look at it and change it.
#[derive(Debug)]
pub struct HookSite<'a, 'ctx> {
    module: &'a Module<'ctx>,
    function: Option<FunctionValue<'ctx>>,
}

impl<'a, 'ctx> HookSite<'a, 'ctx> {
    /// The module that is being optimized.
    pub fn module(&self) -> &'a Module<'ctx> {
        self.module
    }

    /// The function that is being optimized, where passes run over functions one by one. Others must be left as they are then.
    pub fn function(&self) -> Option<FunctionValue<'ctx>> {
        self.function
    }
}

type HookCode = dyn for<'a, 'ctx> Fn(HookSite<'a, 'ctx>) -> Result<(), String> + Send + Sync;

/// Code of the host's that runs between LLVM's passes, on each module that is compiled.
///
/// A module that is [divided early](crate::ir::PartitionPolicy::Early) is optimized part by part: the hook runs for each part, and sees
/// what that part holds alone.
///
/// # Errors
/// What the code answers, or panics with, is [`CompileError::Hook`]. Passes that may be left out do not run after it.
///
/// # Concurrency
/// Runs on every thread that compiles, at once, while that thread holds the module's context: it must not wait for symbols.
///
/// Fatal errors of LLVM inside inkwell's calls end the process: inkwell's functions cannot unwind.
#[derive(Clone)]
pub struct PassHook {
    id: Arc<str>,
    code: Arc<HookCode>,
}

impl PassHook {
    /// A hook with the name `id`, which is part of the key of cached objects: a change of the code needs a change of `id`.
    pub fn new<E: fmt::Display>(
        id: impl Into<Arc<str>>,
        code: impl for<'a, 'ctx> Fn(HookSite<'a, 'ctx>) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self { id: id.into(), code: Arc::new(move |site| code(site).map_err(|error| error.to_string())) }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for PassHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PassHook").field(&self.id).finish()
    }
}

/// The host's side of one run of passes.
pub(super) struct HostRun<'a> {
    module: &'a LockedModule<'a>,
    hooks: &'a [PassHook],
    failure: Option<CompileError>,
    times: PassTimes,
}

/// How long passes took: the stage's number, the pass, nanoseconds, how often it ran.
pub(super) type PassTimes = Vec<(u32, String, u64, u64)>;

impl<'a> HostRun<'a> {
    pub(super) fn new(module: &'a LockedModule<'a>, hooks: &'a [PassHook]) -> Self {
        Self { module, hooks, failure: None, times: Vec::new() }
    }

    /// The measured times, or the failure of a hook.
    pub(super) fn into_times(self) -> Result<PassTimes, CompileError> {
        self.failure.map_or(Ok(self.times), Err)
    }

    fn call(&mut self, hook: &PassHook, function: LLVMValueRef) -> bool {
        // SAFETY: the module is alive and held by this thread for the closure, whose type cannot let the lifetime out; `ManuallyDrop`
        // leaves the ownership where it is. The function is null or one of that module's.
        let (module, function) =
            unsafe { (ManuallyDrop::new(Module::new(self.module.raw())), FunctionValue::new(function)) };
        let site = HookSite { module: &module, function };
        let result = catch_unwind(AssertUnwindSafe(|| (hook.code)(site)));
        let message = match result {
            Ok(Ok(())) => return true,
            Ok(Err(message)) => message,
            Err(payload) => format!("panicked: {}", text_of(&*payload)),
        };
        let (module, hook) = (self.module.name().clone(), hook.id.clone());
        self.failure = Some(CompileError::Hook { module, hook, message });
        false
    }
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("with something that is no text")
}

/// Runs the hook of that number.
///
/// # Safety
/// `data` is a [`HostRun`] that has no other user meanwhile; the function is null or one of its module's.
pub(super) unsafe extern "C" fn host(data: *mut c_void, number: u32, function: LLVMValueRef) -> bool {
    // SAFETY: the caller's obligation.
    let run = unsafe { &mut *data.cast::<HostRun<'_>>() };
    match run.hooks.get(number as usize) {
        Some(hook) => run.call(hook, function),
        None => true,
    }
}

/// Notes how long a pass took.
///
/// # Safety
/// `data` is a [`HostRun`] that has no other user meanwhile; `pass` points to `size` bytes of text.
pub(super) unsafe extern "C" fn hear(
    data: *mut c_void,
    stage: u32,
    pass: *const std::ffi::c_char,
    size: usize,
    nanoseconds: u64,
    runs: u64,
) {
    // SAFETY: the caller's obligation.
    let (run, pass) = unsafe { (&mut *data.cast::<HostRun<'_>>(), super::ffi::bytes(pass, size)) };
    run.times.push((stage, String::from_utf8_lossy(pass).into_owned(), nanoseconds, runs));
}

/// Tells how many functions are done.
///
/// # Safety
/// `data` is a [`HostRun`] that no other code uses meanwhile.
pub(super) unsafe extern "C" fn count(data: *mut c_void, step: u32, done: u64, more: u64) {
    // SAFETY: the caller's obligation.
    let run = unsafe { &*data.cast::<HostRun<'_>>() };
    progress::tell(run.module.name(), step, done, more);
}
