//! The definitions of other files that a module has copies of, for the optimizer alone (`available_externally`).

use inkwell::module::Linkage;

use super::error::CompileError;
use super::module::ThreadSafeModule;
use super::read::unread_bitcode;
use crate::object::{FileKind, ObjectBuffer};

/// The names of the definitions that a module has copies of: its code may contain theirs.
///
/// # Errors
/// [`CompileError`] of a module that cannot be read.
///
/// # Cost
/// Bitcode is read without the bodies of its functions. Text is read whole, if it has the word.
pub fn copied_names(source: &ObjectBuffer) -> Result<Vec<Box<str>>, CompileError> {
    let has_the_word = || {
        let text = std::str::from_utf8(source.bytes());
        text.is_ok_and(|text| text.contains("available_externally"))
    };
    let module = match FileKind::of(source.bytes()) {
        FileKind::Bitcode => unread_bitcode(source)?,
        FileKind::TextualIr | FileKind::Other if has_the_word() => ThreadSafeModule::parse_assembly(source)?,
        _ => return Ok(Vec::new()),
    };
    module.with_module(|module| {
        let functions =
            module.get_functions().map(|function| (function.get_linkage(), function.get_name().to_owned()));
        let globals = module.get_globals().map(|global| (global.get_linkage(), global.get_name().to_owned()));
        let copies = functions.chain(globals).filter(|(linkage, _)| *linkage == Linkage::AvailableExternally);
        // A name that begins with this byte is one that no prefix is put before.
        copies.filter_map(|(_, name)| Some(name.to_str().ok()?.trim_start_matches('\u{1}').into())).collect()
    })
}
