//! The instruction sets that a file of LLVM IR was compiled for, as the comments of its object say them.
//!
//! ```text
//!   section .comment:  ... "uruk needs " 32 digits, hexadecimal ...
//! ```
//!
//! The digits are the bits of a set of instruction sets (`arch/x86_64/features.rs`). Objects of compilers say nothing of the kind.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};

use super::{ObjectBuffer, parts};

const BEGINS: &str = "uruk needs ";
const DIGITS: usize = 32;

/// The comment.
#[cfg(feature = "llvm")]
pub(crate) fn level_text(bits: u128) -> String {
    format!("{BEGINS}{bits:032x}")
}

/// The bits in the comments of an object, or of the parts of a module. None if they say nothing.
///
/// # Cost
/// A pass over the comments.
pub(crate) fn level_of(object: &ObjectBuffer) -> u128 {
    match parts(object) {
        None => of_one(object.bytes()).unwrap_or(0),
        // Parts that cannot be told apart are an error of the link.
        Some(parts) => parts.unwrap_or_default().into_iter().filter_map(of_one).fold(0, |all, one| all | one),
    }
}

fn of_one(data: &[u8]) -> Option<u128> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let sections = header.sections(LittleEndian, data).ok()?;
    let (_, comments) = sections.section_by_name(LittleEndian, b".comment")?;
    let comments = comments.data(LittleEndian, data).ok()?;
    let said = comments.split(|byte| *byte == 0).filter_map(|comment| {
        let digits = comment.strip_prefix(BEGINS.as_bytes()).filter(|digits| digits.len() == DIGITS)?;
        u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    });
    Some(said.fold(0, |all, one| all | one))
}
