//! Texts that a host attaches to a module, as named metadata. They go with it into copies, into bitcode, and into modules that it is linked
//! into; LLVM does nothing with them.

use std::ffi::{c_char, c_void};

use inkwell::module::Module;
use inkwell::values::BasicMetadataValueEnum;

use super::ffi::{self, bytes};

/// Attaches texts to a module, as one entry of those of `name`.
///
/// # Panics
/// If the name has a NUL.
pub fn attach_texts(module: &Module<'_>, name: &str, texts: &[&str]) {
    assert!(!name.contains('\0'), "a name without NUL");
    let context = module.get_context();
    let texts: Vec<BasicMetadataValueEnum<'_>> =
        texts.iter().map(|text| context.metadata_string(text).into()).collect();
    let added = module.add_global_metadata(name, &context.metadata_node(&texts));
    debug_assert!(added.is_ok(), "it is a node");
}

/// Takes all entries of `name` off a module, in the order in which they were attached. A part that is no text is left out.
pub fn take_attached(module: &Module<'_>, name: &str) -> Vec<Vec<String>> {
    /// A null text begins an entry.
    unsafe extern "C" fn hear(data: *mut c_void, text: *const c_char, size: usize) {
        // SAFETY: it is called with the pointer that is passed below, whose entries have no other user meanwhile.
        let entries = unsafe { &mut *data.cast::<Vec<Vec<String>>>() };
        if text.is_null() {
            entries.push(Vec::new());
        } else if let Some(entry) = entries.last_mut() {
            // SAFETY: the bytes live for the call.
            entry.push(String::from_utf8_lossy(unsafe { bytes(text, size) }).into_owned());
        }
    }
    let mut entries: Vec<Vec<String>> = Vec::new();
    let data = (&raw mut entries).cast();
    // SAFETY: the module is alive, and no other thread uses it, as inkwell's type says; name and sink live for the call.
    unsafe {
        ffi::uruk_llvm_take_attached(module.as_mut_ptr(), name.as_ptr().cast(), name.len(), hear, data);
    }
    entries
}

#[cfg(test)]
mod tests {
    use inkwell::context::Context;

    use super::*;

    #[test]
    fn texts_are_taken_once_and_go_with_copies() {
        let context = Context::create();
        let module = context.create_module("m");
        assert_eq!(take_attached(&module, "texts"), Vec::<Vec<String>>::new());
        attach_texts(&module, "texts", &["one", ""]);
        attach_texts(&module, "texts", &["two"]);
        attach_texts(&module, "others", &["three"]);
        let copy = module.clone();
        let expected = vec![vec!["one".to_owned(), String::new()], vec!["two".to_owned()]];
        assert_eq!(take_attached(&module, "texts"), expected);
        assert_eq!(take_attached(&module, "texts"), Vec::<Vec<String>>::new());
        assert_eq!(take_attached(&copy, "texts"), expected);
        assert_eq!(take_attached(&module, "others"), [["three"]]);
    }
}
