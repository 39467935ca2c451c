//! Functions of libLLVM's that this library stands in front of, so that passes can be [put off](crate::put_off).
//!
//! ```text
//!  client ─▶ LLVMRunPasses ─▶ note in the module ─▶ LLVMOrcLLJITAddLLVMIRModule ─▶ found in the cache: no pass runs
//!                                                                              └─▶ missing: our compiler runs them
//! ```
//!
//! Without [`DEFER`] each goes straight to libLLVM.
//!
//! **Passes run exactly once, or never were wanted.** A module whose passes were put off is *settled* before our library hands it to code that is
//! not to see it without: libLLVM's own `LLVMRunPasses` runs them then.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;

use llvm_sys::core::LLVMGetGlobalParent;
use llvm_sys::error::LLVMErrorRef;
use llvm_sys::prelude::{LLVMBool, LLVMMemoryBufferRef, LLVMModuleRef, LLVMValueRef};
use llvm_sys::target_machine::LLVMTargetMachineRef;
use llvm_sys::transforms::pass_builder::{LLVMCreatePassBuilderOptions, LLVMPassBuilderOptionsRef};
use uruk::core::sync::Mutex;

use crate::boundary::{Out, Outcome, Text, catch};
use crate::cache;
use crate::errors::{ClientError, Problem};
use crate::owned::{Context, Module};
use crate::put_off::{self, PutOff};

/// Has passes put off, where there is a cache.
const DEFER: &str = "URUK_ORC_DEFER";

fn is_on() -> bool {
    std::env::var_os(DEFER).is_some_and(|value| value == "1") && cache::directory().is_some()
}

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

/// The function of that name in the libraries behind this one.
fn behind(name: &'static CStr) -> Result<*mut c_void, Problem> {
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
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

/// Those of options that were not disposed of. Options without an entry are LLVM's own.
static WISHES: Mutex<BTreeMap<usize, Wishes>> = Mutex::new(BTreeMap::new());

fn wish(options: LLVMPassBuilderOptionsRef, change: impl FnOnce(&mut Wishes)) {
    if is_on() {
        change(WISHES.lock().entry(options.addr()).or_default());
    }
}

/// Passes that may wait: with all that is said of them, and without a print that the client would miss.
fn may_wait(text: &str, machine: LLVMTargetMachineRef, options: LLVMPassBuilderOptionsRef) -> Option<PutOff> {
    let Wishes { inliner_threshold, has_others } =
        WISHES.lock().get(&options.addr()).copied().unwrap_or_default();
    let waits = !has_others && !text.contains("print");
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
) -> Result<Answer, Problem> {
    static UNDERSTOOD: Mutex<BTreeSet<(String, bool)>> = Mutex::new(BTreeSet::new());
    // A target brings passes of its own.
    let key = (passes.get()?.to_owned(), machine.is_null());
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

/// Runs the passes that were put off for a module.
pub(crate) fn settle(module: LLVMModuleRef) -> Result<(), Problem> {
    run_all(module, put_off::take(module))
}

/// Runs passes over a module, as its client would have had them run at once.
pub(crate) fn run_all(module: LLVMModuleRef, all: Vec<PutOff>) -> Result<(), Problem> {
    all.into_iter().try_for_each(|passes| run(module, &passes))
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
        if is_on() && !module.is_null() && !options.is_null() {
            let before = put_off::take(module);
            if before.is_empty() && let Some(all) = may_wait(passes.get()?, machine, options) {
                let answer = understand(own, passes, machine, options)?;
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
        if is_on() && !function.is_null() {
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
