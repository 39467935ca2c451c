//! Modules that are compiled as a whole: why some have to be, and stubs for those that are when one of their functions is first called.

use std::collections::HashMap;

use uruk_core::SymbolFlags;

use super::lazy_module::{BODY_PREFIX, LazyModule};
use super::outline::{Outline, ValuePart};
use super::symbols::ModuleInterface;
use crate::lazy::FileStubs;

/// Why the functions of a module cannot be compiled one at a time. `README.md` has all facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaysWhole {
    /// Assembly may refer to anything in the module.
    #[error("it has assembly of its own")]
    Assembly,
    /// Other files find these sections by their ends, and want all that is in them.
    #[error(
        "its functions put something into sections that other files look through, or look through such sections in assembly"
    )]
    Sections,
    /// A function is told from others, or from variables, only in its module.
    #[error("it has tables of all its code, or names that only the whole module tells apart")]
    Facts,
}

impl StaysWhole {
    pub(super) fn of(interface: &ModuleInterface, outline: &Outline) -> Option<Self> {
        let has_facts = outline.stays_whole || outline.has_names_with(BODY_PREFIX);
        let reasons = [
            (interface.has_assembly, Self::Assembly),
            (interface.code_shares_sections, Self::Sections),
            (has_facts, Self::Facts),
        ];
        reasons.into_iter().find_map(|(holds, why)| holds.then_some(why))
    }
}

impl LazyModule {
    /// Stubs for the functions that others may call, if the module is compiled as a whole when one of them is. Nothing if some have to be
    /// there before: those that choose their implementation, and those that have a local name too, whose address code of the same
    /// section takes without telling a linker.
    pub fn stubs_of_file(&self) -> Option<FileStubs> {
        let mut stubs = FileStubs::of(self.name());
        let flags: HashMap<&str, _> =
            self.interface().symbols.iter().map(|symbol| (&*symbol.name, symbol.flags)).collect();
        let values = &self.outline().values;
        for value in values.iter().filter(|value| !value.is_local()) {
            let of = match value.kind {
                ValuePart::OnCall => &value.name,
                ValuePart::OtherName if values[value.of as usize].is_local() => return None,
                ValuePart::OtherName => &values[value.of as usize].name,
                _ => continue,
            };
            if let Some(flags) = flags.get(&*value.name) {
                stubs.add(&value.name, of, *flags);
            }
        }
        let called =
            self.interface().symbols.iter().filter(|symbol| symbol.flags.contains(SymbolFlags::CALLABLE));
        let all_have_stubs = called.map(|symbol| &*symbol.name).all(|name| stubs.has(name));
        all_have_stubs.then_some(stubs)
    }
}
