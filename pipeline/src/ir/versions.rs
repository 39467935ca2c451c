//! [`ModuleVersion`]: the code of a module for further processors, beside that for the base.
//!
//! ```text
//!  normalize ─ publish ─┬─ optimize, generate for the base ───────────────────────────┬─ join
//!                       └─ copy ─ functions alone ─ optimize, generate for the target ┘
//! ```
//!
//! `versions.cpp` makes the copy. Its variables are declarations, so each exists once. The objects are joined as those of parts are; the linker
//! finds the versions by their names, and decides which are worth their bytes (`link/versions.rs`).

use std::ffi::{c_char, c_void};

use super::error::CompileError;
use super::ffi::{self, bytes, c_string, take_message};
use super::library;
use super::module::{LockedModule, ThreadSafeModule};
use super::target::JitTargetMachineBuilder;
use crate::arch::Features;
use crate::object::level_text;

/// Processors that modules are compiled for as well.
#[derive(Clone, Debug)]
pub struct ModuleVersion {
    /// The name of the target, which is behind the names of its functions.
    pub name: Box<str>,
    /// The target. Each function has its processor and its features as attributes.
    pub target: JitTargetMachineBuilder,
    /// The widest vectors that it has in registers, in bits.
    pub vector_bits: u32,
    /// The name of the base, and the same of that.
    pub base: (Box<str>, u32),
}

impl ModuleVersion {
    /// The version of `module`, which was published.
    pub(super) fn of(&self, module: &LockedModule<'_>) -> Result<ThreadSafeModule, CompileError> {
        let copy = module.to_canonical()?;
        let locked = copy.lock()?;
        let options = self.target.options();
        let names = [&*self.base.0, &*self.name, &options.cpu, &options.features].map(c_string);
        let [base, name, cpu, features] = names.each_ref().map(|name| name.as_ptr());
        let make = || {
            let (base_bits, bits) = (self.base.1, self.vector_bits);
            // SAFETY: the module is alive and held; the names live for the call.
            unsafe {
                ffi::uruk_llvm_make_version(locked.raw(), base, name, cpu, features, base_bits, bits);
            }
            Ok(())
        };
        locked.enter("making a version", make, diagnosed(&locked))?;
        if cfg!(debug_assertions) {
            locked.verify()?;
        }
        drop(locked);
        Ok(copy)
    }
}

/// The instruction sets of a processor that LLVM knows by name, with `features` (`+avx2,-fma`) added and taken away, and the names of those that
/// code may use and that have no number. `None` if it knows none of that name.
///
/// # Errors
/// [`CompileError::Library`] if LLVM cannot be loaded.
pub fn features_of_processor(
    cpu: &str,
    features: &str,
) -> Result<Option<(Features, Vec<String>)>, CompileError> {
    unsafe extern "C-unwind" fn sink(data: *mut c_void, name: *const c_char, size: usize) {
        // SAFETY: the shim hands on the pointer it got below and a name that lives for the call.
        let (found, name) = unsafe { (&mut *data.cast::<(Features, Vec<String>)>(), bytes(name, size)) };
        let name = String::from_utf8_lossy(name);
        match Features::by_name(&name) {
            Some(one) => found.0 = found.0.union(one),
            None if Features::is_uncounted(&name) => {}
            None => found.1.push(name.into_owned()),
        }
    }
    library::load()?;
    let (cpu, features, mut found) = (c_string(cpu), c_string(features), (Features::NONE, Vec::new()));
    let data = (&raw mut found).cast();
    // SAFETY: the names live for the call; `sink` takes what `found` is.
    let is_known = unsafe { ffi::uruk_llvm_processor(cpu.as_ptr(), features.as_ptr(), sink, data) };
    found.1.sort_unstable();
    Ok(is_known.then_some(found))
}

/// Has the object of `module` say which instruction sets its file was compiled for, if they are more than `target` has: an image needs them then.
/// Functions that ask for some themselves do not count.
pub(super) fn note_level(
    module: &LockedModule<'_>,
    target: &JitTargetMachineBuilder,
) -> Result<(), CompileError> {
    unsafe extern "C-unwind" fn sink(data: *mut c_void, name: *const c_char, size: usize) {
        // SAFETY: the shim hands on the pointer it got below and a name that lives for the call.
        let (found, name) = unsafe { (&mut *data.cast::<Features>(), bytes(name, size)) };
        let name = std::str::from_utf8(name).unwrap_or_default();
        *found = found.union(Features::by_name(name.trim_start_matches('+')).unwrap_or_default());
    }
    let mut level = Features::NONE;
    // SAFETY: the module is alive and held; `sink` takes what `level` is.
    unsafe { ffi::uruk_llvm_level(module.raw(), sink, (&raw mut level).cast()) };
    if level.is_empty() {
        return Ok(());
    }
    let options = target.options();
    let known = features_of_processor(&options.cpu, &options.features)?;
    let beyond = level.without(known.map_or(Features::NONE, |(features, _)| features));
    if !beyond.is_empty() {
        let text = c_string(&level_text(beyond.bits()));
        // SAFETY: the module is alive and held; the text lives for the call.
        unsafe { ffi::uruk_llvm_comment(module.raw(), text.as_ptr()) };
    }
    Ok(())
}

/// Has the functions of `module`, which were written for older processors, use what the processor of `target` has. Those of a module that passes
/// vectors stay as they are: others call them by registers that depend on it.
pub(super) fn retarget(
    module: &LockedModule<'_>,
    target: &JitTargetMachineBuilder,
) -> Result<(), CompileError> {
    let options = target.options();
    let (cpu, features) = (c_string(&options.cpu), c_string(&options.features));
    let change = || {
        // SAFETY: the module is alive and held; the names live for the call.
        unsafe { ffi::uruk_llvm_retarget(module.raw(), cpu.as_ptr(), features.as_ptr()) };
        Ok(())
    };
    module.enter("choosing a processor", change, diagnosed(module))
}

/// Gives all that versions refer to a name for the module's other objects. Says whether it can have versions.
pub(super) fn publish(module: &LockedModule<'_>) -> Result<bool, CompileError> {
    // SAFETY: the module is alive and held.
    let publish = || Ok(unsafe { ffi::uruk_llvm_publish_all(module.raw()) });
    module.enter("publishing", publish, diagnosed(module))
}

/// Holds that the functions of a version, which was optimized, pass vectors as those of the base do. All is well with other modules.
///
/// # Errors
/// [`CompileError::Diagnosed`] with the first that does not.
pub(super) fn check_signatures(module: &LockedModule<'_>) -> Result<(), CompileError> {
    // SAFETY: the module is alive and held; the message is taken over at once.
    let found = unsafe { take_message(ffi::uruk_llvm_wide_signature(module.raw())) };
    if found.is_empty() { Ok(()) } else { Err(diagnosed(module)(found)) }
}

fn diagnosed(module: &LockedModule<'_>) -> impl Fn(String) -> CompileError + use<> {
    let module = module.name().clone();
    move |message| CompileError::Diagnosed { module: module.clone(), message }
}
