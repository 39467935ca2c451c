//! Functions of libLLVM's that this library stands in front of, so that passes can be [put off](crate::put_off).
//!
//! ```text
//!  client ─▶ LLVMRunPasses ─▶ note in the module ─▶ LLVMOrcLLJITAddLLVMIRModule ─▶ found in the cache: no pass runs
//!                                                                              └─▶ missing: our compiler runs them
//! ```
//!
//! Without [`DEFER`] none is put off. A module that was written with a note by another process has its passes run all the same.
//!
//! **Passes run exactly once, or never were wanted.** A module whose passes were put off is *settled* before our library hands it to code that is
//! not to see it without: libLLVM's own `LLVMRunPasses` runs them then. If that fails, those that did not run are noted again.
//!
//! Passes wait only if all that they do is in the code that they leave: see [`WAITS`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use llvm_sys::core::LLVMGetGlobalParent;
use llvm_sys::error::LLVMErrorRef;
use llvm_sys::prelude::{LLVMBool, LLVMMemoryBufferRef, LLVMModuleRef, LLVMValueRef};
use llvm_sys::target_machine::LLVMTargetMachineRef;
use llvm_sys::transforms::pass_builder::LLVMPassBuilderOptionsRef;
use uruk::core::sync::Mutex;

use crate::boundary::{Out, Outcome, Text, catch};
use crate::cache;
use crate::errors::{ClientError, Problem};
use crate::owned::{Context, Module};
use crate::put_off::{self, PutOff};

/// Has passes put off, where there is a cache.
const DEFER: &str = "URUK_ORC_DEFER";

/// Whether passes may wait. Once answered, it stays.
fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    let is_asked_for =
        || std::env::var_os(DEFER).is_some_and(|value| value == "1") && cache::directory().is_some();
    *IS_ON.get_or_init(is_asked_for) && !*HAS_COMMAND_LINE.lock()
}

/// Whether the client has set options of LLVM's command line. They change what passes do, and no key has them.
static HAS_COMMAND_LINE: Mutex<bool> = Mutex::new(false);

/// An error of libLLVM's, or one of ours.
#[repr(transparent)]
struct Answer(LLVMErrorRef);

impl Outcome for Answer {
    type Value = LLVMErrorRef;

    fn of(value: LLVMErrorRef) -> Self {
        Self(value)
    }

    fn failed(problem: Problem) -> Self {
        Self(problem.into_llvm())
    }
}

type RunPasses =
    unsafe extern "C" fn(LLVMModuleRef, Text, LLVMTargetMachineRef, LLVMPassBuilderOptionsRef) -> Answer;

/// The function of that name in the libraries behind this one. A process may have more than one libLLVM: that of our version is asked for first.
fn behind(name: &'static CStr) -> Result<*mut c_void, Problem> {
    // SAFETY: both texts end in NUL.
    let versioned = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"LLVM_22.1".as_ptr()) };
    let found = match versioned.is_null() {
        false => versioned,
        // SAFETY: the name ends in NUL.
        true => unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) },
    };
    match found.is_null() {
        false => Ok(found),
        true => Err(Problem::new(format_args!(
            "no libLLVM with {} is behind liburuk_orc",
            name.to_string_lossy()
        ))),
    }
}

const fn c_str(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the name of a function"),
    }
}

/// Defines functions that libLLVM has too. In a body, `own` is libLLVM's.
macro_rules! in_front {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? |$own:ident| $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            catch(stringify!($name), || {
                let $own = behind(const { c_str(concat!(stringify!($name), "\0")) }).map(|address| {
                    // SAFETY: libLLVM's function of that name has that type, as LLVM's headers say.
                    unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>(address) }
                });
                $body
            })
        }
    )*};
}

/// The values of options, as far as they were set.
#[derive(Clone, Copy, Default)]
struct Wishes {
    inliner_threshold: Option<i32>,
    /// Something that our pipeline does not have.
    has_others: bool,
}

/// Those of options that were made by our function and not disposed of. Others may have any values.
static WISHES: Mutex<BTreeMap<usize, Wishes>> = Mutex::new(BTreeMap::new());

fn wish(options: LLVMPassBuilderOptionsRef, change: impl FnOnce(&mut Wishes)) {
    if let Some(wishes) = WISHES.lock().get_mut(&options.addr()) {
        change(wishes);
    }
}

/// Passes that may wait: they keep the names that others see, and do nothing but change code. A pass that prints, writes a file, counts, or hides and
/// renames definitions is none of them.
const WAITS: &[&str] = &[
    "adce",
    "aggressive-instcombine",
    "always-inline",
    "bdce",
    "cgscc",
    "correlated-propagation",
    "dce",
    "default",
    "dse",
    "early-cse",
    "function",
    "function-attrs",
    "gvn",
    "indvars",
    "inline",
    "instcombine",
    "instsimplify",
    "ipsccp",
    "jump-threading",
    "lcssa",
    "licm",
    "loop",
    "loop-instsimplify",
    "loop-mssa",
    "loop-rotate",
    "loop-simplify",
    "loop-unroll",
    "loop-vectorize",
    "lower-expect",
    "mem2reg",
    "memcpyopt",
    "module",
    "reassociate",
    "sccp",
    "simplifycfg",
    "slp-vectorizer",
    "sroa",
    "tailcallelim",
    "vector-combine",
    "verify",
];

/// The names of passes in a text: what stands between parentheses and commas, without parameters in angle brackets.
fn names(text: &str) -> Vec<String> {
    let (mut names, mut depth) = (vec![String::new()], 0_usize);
    for character in text.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '(' | ')' | ',' => names.push(String::new()),
            _ => names.last_mut().expect("one at least").push(character),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Passes that may wait, with all that is said of them.
fn may_wait(text: &str, machine: LLVMTargetMachineRef, options: LLVMPassBuilderOptionsRef) -> Option<PutOff> {
    let Wishes { inliner_threshold, has_others } = *WISHES.lock().get(&options.addr())?;
    let waits = !has_others && names(text).iter().all(|name| WAITS.contains(&&**name));
    waits.then(|| PutOff::new(text, inliner_threshold, machine))
}

/// How many texts are remembered as understood.
const UNDERSTOOD_MAX: usize = 64;

/// Has LLVM say whether it understands passes: it runs them over nothing.
fn understand(
    own: RunPasses,
    passes: Text,
    machine: LLVMTargetMachineRef,
    options: LLVMPassBuilderOptionsRef,
    all: &PutOff,
) -> Result<Answer, Problem> {
    static UNDERSTOOD: Mutex<BTreeSet<(String, Option<String>)>> = Mutex::new(BTreeSet::new());
    // A target brings passes of its own.
    let key = (all.text.clone(), all.triple().map(str::to_owned));
    if UNDERSTOOD.lock().contains(&key) {
        return Ok(Answer(ptr::null_mut()));
    }
    let context = Context::new();
    let module = Module::nothing_in(&context);
    // SAFETY: the module is ours, and all else is the client's, as it was passed to libLLVM's function.
    let answer = unsafe { own(module.raw(), passes, machine, options) };
    if answer.0.is_null() {
        let mut understood = UNDERSTOOD.lock();
        if understood.len() == UNDERSTOOD_MAX {
            understood.clear();
        }
        understood.insert(key);
    }
    Ok(answer)
}

/// Runs the passes that were put off for a module. Threads that only look at one module, as they may at once, wait for the first.
pub(crate) fn settle(module: LLVMModuleRef) -> Result<(), Problem> {
    static SETTLES: Mutex<()> = Mutex::new(());
    let _one_at_a_time = SETTLES.lock();
    run_all(module, put_off::take(module))
}

/// Runs passes over a module, as its client would have had them run at once. Those that do not run are noted again.
pub(crate) fn run_all(module: LLVMModuleRef, all: Vec<PutOff>) -> Result<(), Problem> {
    let mut left = all.into_iter();
    while let Some(passes) = left.next() {
        if let Err(problem) = run(module, &passes) {
            passes.note(module);
            left.for_each(|passes| passes.note(module));
            return Err(problem);
        }
    }
    Ok(())
}

fn run(module: LLVMModuleRef, passes: &PutOff) -> Result<(), Problem> {
    let address = behind(c"LLVMRunPasses")?;
    let text = CString::new(&*passes.text)?;
    let machine = passes.machine()?;
    let machine = machine.as_ref().map_or(ptr::null_mut(), |machine| machine.as_mut_ptr());
    // SAFETY: libLLVM's function has that type. The module is alive, text and machine live for the call, and the options are ours until they
    // are disposed of.
    let answer = unsafe {
        let own = transmute::<*mut c_void, RunPasses>(address);
        let options = LLVMCreatePassBuilderOptions();
        if let Some(threshold) = passes.inliner_threshold {
            LLVMPassBuilderOptionsSetInlinerThreshold(options, threshold);
        }
        let answer = own(module, Text::of(&text), machine, options);
        LLVMDisposePassBuilderOptions(options);
        answer
    };
    ClientError::new(answer.0).into_result().map_err(Problem::new)
}

/// Lets libLLVM generate code from a module that was settled.
fn emit(
    module: LLVMModuleRef,
    message: Out<*mut c_char>,
    emit: Result<impl FnOnce() -> LLVMBool, Problem>,
) -> LLVMBool {
    match settle(module).and(emit) {
        Ok(emit) => emit(),
        Err(problem) => {
            message.set(problem.into_message());
            1
        }
    }
}

in_front! {
    fn LLVMRunPasses(
        module: LLVMModuleRef,
        passes: Text,
        machine: LLVMTargetMachineRef,
        options: LLVMPassBuilderOptionsRef,
    ) -> Answer |own| {
        let own = own?;
        if !module.is_null() {
            let before = put_off::take(module);
            if is_on() && before.is_empty() && let Some(all) = may_wait(passes.get()?, machine, options) {
                let answer = understand(own, passes, machine, options, &all)?;
                if answer.0.is_null() {
                    all.note(module);
                }
                return Ok(answer.0);
            }
            run_all(module, before)?;
        }
        // SAFETY: the arguments are the client's, as it has passed them.
        Ok(unsafe { own(module, passes, machine, options) }.0)
    }

    fn LLVMRunPassesOnFunction(
        function: LLVMValueRef,
        passes: Text,
        machine: LLVMTargetMachineRef,
        options: LLVMPassBuilderOptionsRef,
    ) -> Answer |own| {
        let own = own?;
        if !function.is_null() {
            // SAFETY: the client's function is alive, and is one of a module.
            settle(unsafe { LLVMGetGlobalParent(function) })?;
        }
        // SAFETY: the arguments are the client's, as it has passed them.
        Ok(unsafe { own(function, passes, machine, options) }.0)
    }

    fn LLVMTargetMachineEmitToFile(
        machine: LLVMTargetMachineRef,
        module: LLVMModuleRef,
        file: *const c_char,
        kind: c_int,
        message: Out<*mut c_char>,
    ) -> LLVMBool |own| {
        // SAFETY: the arguments are the client's, as it has passed them.
        Ok(emit(module, message, own.map(|own| move || unsafe { own(machine, module, file, kind, message) })))
    }

    fn LLVMTargetMachineEmitToMemoryBuffer(
        machine: LLVMTargetMachineRef,
        module: LLVMModuleRef,
        kind: c_int,
        message: Out<*mut c_char>,
        buffer: *mut LLVMMemoryBufferRef,
    ) -> LLVMBool |own| {
        // SAFETY: the arguments are the client's, as it has passed them.
        Ok(emit(module, message, own.map(|own| move || unsafe { own(machine, module, kind, message, buffer) })))
    }

    fn LLVMLinkModules2(into: LLVMModuleRef, from: LLVMModuleRef) -> LLVMBool |own| {
        let own = own?;
        // The passes of the one are not for the other.
        settle(into).and_then(|()| settle(from))?;
        // SAFETY: the arguments are the client's, as it has passed them.
        Ok(unsafe { own(into, from) })
    }

    fn LLVMParseCommandLineOptions(count: c_int, arguments: *const *const c_char, overview: *const c_char) |own| {
        *HAS_COMMAND_LINE.lock() = true;
        // SAFETY: the arguments are the client's, as it has passed them.
        unsafe { own?(count, arguments, overview) };
        Ok(())
    }

    fn LLVMCreatePassBuilderOptions() -> LLVMPassBuilderOptionsRef |own| {
        // SAFETY: it takes nothing.
        let options = unsafe { own?() };
        WISHES.lock().insert(options.addr(), Wishes::default());
        Ok(options)
    }

    fn LLVMPassBuilderOptionsSetInlinerThreshold(options: LLVMPassBuilderOptionsRef, threshold: c_int) |own| {
        wish(options, |wishes| wishes.inliner_threshold = Some(threshold));
        // SAFETY: the arguments are the client's, as it has passed them.
        unsafe { own?(options, threshold) };
        Ok(())
    }

    fn LLVMDisposePassBuilderOptions(options: LLVMPassBuilderOptionsRef) |own| {
        WISHES.lock().remove(&options.addr());
        // SAFETY: the arguments are the client's, as it has passed them.
        unsafe { own?(options) };
        Ok(())
    }
}

/// Setters of options that our pipeline does not have: with them, passes run at once.
macro_rules! other_setters {
    ($($name:ident($type:ty);)*) => {
        in_front! {$(
            fn $name(options: LLVMPassBuilderOptionsRef, value: $type) |own| {
                wish(options, |wishes| wishes.has_others = true);
                // SAFETY: the arguments are the client's, as it has passed them.
                unsafe { own?(options, value) };
                Ok(())
            }
        )*}
    };
}

other_setters! {
    LLVMPassBuilderOptionsSetVerifyEach(LLVMBool);
    LLVMPassBuilderOptionsSetDebugLogging(LLVMBool);
    LLVMPassBuilderOptionsSetAAPipeline(*const c_char);
    LLVMPassBuilderOptionsSetLoopInterleaving(LLVMBool);
    LLVMPassBuilderOptionsSetLoopVectorization(LLVMBool);
    LLVMPassBuilderOptionsSetSLPVectorization(LLVMBool);
    LLVMPassBuilderOptionsSetLoopUnrolling(LLVMBool);
    LLVMPassBuilderOptionsSetForgetAllSCEVInLoopUnroll(LLVMBool);
    LLVMPassBuilderOptionsSetLicmMssaOptCap(u32);
    LLVMPassBuilderOptionsSetLicmMssaNoAccForPromotionCap(u32);
    LLVMPassBuilderOptionsSetCallGraphProfile(LLVMBool);
    LLVMPassBuilderOptionsSetMergeFunctions(LLVMBool);
}
