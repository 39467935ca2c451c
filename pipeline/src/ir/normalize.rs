//! Makes a module mean the same wherever it was compiled for: a part of a program that is linked while it runs.
//!
//! | what compilers assume | what holds here | so |
//! |---|---|---|
//! | `PIE Level`: this becomes the main executable, whose thread-local storage has a fixed place | it does not | the level becomes 0 and thread-local variables general-dynamic: TLSGD, TLSLD and DTPOFF only |
//! | `PIC Level` below 2, `direct-access-external-data`: what is elsewhere lies nearby | it may lie anywhere | 2, and no |
//! | `dso_local` on declarations, on functions and on definitions that may yield: the linker finds them in this image | they may come from a library, or have a stub | cleared where visibility is default: externals go through GOT and PLT |
//! | each variable lies within 2 GiB of all code | one of 64 MiB and more may not | its own code model becomes the large one |
//! | a later step tests types over all modules of the program | there is none | a test whose result is only assumed goes; a module with another one is refused (`type_tests.cpp`) |
//! | no triple or data layout | the session has one | filled in |
//!
//! Holds: afterwards a module depends on its source and on the compile options alone. Nothing here asks for addresses, names or
//! times. Its bitcode also tells what else lives in its context, except for a canonical copy's (`canonical.rs`).

use uruk_core::Readable;

use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::ffi::{self, take_message};
use super::module::LockedModule;
use super::read;
use super::target::JitTargetMachineBuilder;
use crate::object::ObjectBuffer;

/// Normalizes `module` for `target`.
///
/// # Errors
/// [`CompileError::Target`] if the module is for another machine or lays out data differently; [`CompileError::TypeTest`].
pub(super) fn normalize(
    module: &LockedModule<'_>,
    target: &JitTargetMachineBuilder,
) -> Result<(), CompileError> {
    let phase = uruk_core::phase!("ir.normalize", unit = %module.name());
    let _inside = uruk_core::inside(phase);
    let refused = |message| CompileError::Target { subject: module.name().clone(), message };
    let (triple, wanted) = (module.triple(), &target.options().triple);
    if triple.is_empty() {
        module.set_triple(wanted);
    } else if !same_machine(&triple, wanted) {
        return Err(refused(format!(
            "compiled for {triple}, and this session runs {wanted}; compile it for that (--target={wanted})"
        )));
    }
    let (layout, wanted) = (module.data_layout(), target.data_layout()?);
    if layout.is_empty() {
        module.set_data_layout(wanted);
    } else if layout != wanted {
        return Err(refused(format!("lays out data as `{layout}`, and this session as `{wanted}`")));
    }
    module.clear_static_assumptions();
    lower_type_tests(module)
}

/// The same with all bodies of `source`, bitcode that was read without, if one of them may be refused: all bodies are, or none.
///
/// # Errors
/// As [`normalize`], and [`CompileError::Parse`].
pub(super) fn check_unread(
    unread: &LockedModule<'_>,
    source: &ObjectBuffer,
    target: &JitTargetMachineBuilder,
) -> Result<(), CompileError> {
    // SAFETY: the module is alive and held.
    if !unsafe { ffi::uruk_llvm_declares_type_tests(unread.raw()) } {
        return Ok(());
    }
    let whole = read::bitcode(&ThreadSafeContext::try_new()?, source)?;
    normalize(&whole.lock()?, target)
}

fn lower_type_tests(module: &LockedModule<'_>) -> Result<(), CompileError> {
    // SAFETY: the module is alive and held; the name is taken over at once.
    let function = unsafe { take_message(ffi::uruk_llvm_lower_type_tests(module.raw())) };
    if function.is_empty() {
        return Ok(());
    }
    let function = Readable(&function).to_string();
    Err(CompileError::TypeTest { module: module.name().clone(), function })
}

/// Whether code for `left` runs on `right`: same architecture, operating system and size of pointers, vendors aside.
fn same_machine(left: &str, right: &str) -> bool {
    fn essentials(triple: &str) -> (&str, bool, bool) {
        let architecture = triple.split('-').next().unwrap_or_default();
        let has = |is_it: fn(&str) -> bool| triple.split('-').any(is_it);
        // On x86-64 there is an environment with pointers of 32 bits.
        (architecture, has(|part| part.starts_with("linux")), has(|part| part.ends_with("x32")))
    }
    essentials(left) == essentials(right)
}

#[cfg(test)]
mod tests {
    use super::same_machine;

    #[test]
    fn vendors_and_environments_do_not_matter() {
        let debian = "x86_64-pc-linux-gnu";
        for same in ["x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "x86_64-unknown-linux-musl"] {
            assert!(same_machine(same, debian), "{same}");
        }
        for other in [
            "aarch64-unknown-linux-gnu",
            "x86_64-apple-darwin",
            "x86_64-pc-windows-msvc",
            "i386-pc-linux-gnu",
            "x86_64-unknown-linux-gnux32",
        ] {
            assert!(!same_machine(other, debian), "{other}");
        }
    }
}
