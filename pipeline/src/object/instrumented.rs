//! Whether a file counts what it executes, for a profile that LLVM's runtime writes.

use memchr::memmem;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::FileHeader as _;

use super::{FileKind, ObjectBuffer};

/// Whether `file` has been compiled with counters for LLVM's profiles (`-fprofile-instr-generate`, `-fprofile-generate`). Nothing in such
/// a file refers to the runtime that writes them: natively the compiler has the linker ask for [`PROFILE_RUNTIME`].
///
/// Archives are not looked into.
///
/// # Cost
/// For an object, a pass over the names of its sections; for LLVM IR, over its bytes.
pub fn is_instrumented(file: &ObjectBuffer) -> bool {
    let bytes = file.bytes();
    match FileKind::of(bytes) {
        FileKind::Object => has_section(bytes, b"__llvm_prf_names").unwrap_or(false),
        // The name of a variable. Bitcode keeps names as they are, and other texts packed.
        FileKind::Bitcode | FileKind::TextualIr => memmem::find(bytes, b"__llvm_prf_nm").is_some(),
        _ => false,
    }
}

/// The symbol of the runtime that writes profiles at exit.
pub const PROFILE_RUNTIME: &str = "__llvm_profile_runtime";

fn has_section(bytes: &[u8], name: &[u8]) -> Option<bool> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let sections = header.sections(LittleEndian, bytes).ok()?;
    Some(
        sections
            .iter()
            .any(|section| sections.section_name(LittleEndian, section).is_ok_and(|known| known == name)),
    )
}
