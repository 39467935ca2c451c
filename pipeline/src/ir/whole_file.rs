//! Stubs for a module that is compiled as a whole when one of its functions is first called.

use std::collections::HashMap;

use uruk_core::SymbolFlags;

use super::lazy_module::LazyModule;
use super::outline::{Kind, OutlinedValue};
use crate::lazy::FileStubs;

impl LazyModule {
    /// Stubs for the functions that others may call, if the module is compiled as a whole when one of them is. Nothing if some have to be
    /// there before: those that choose their implementation.
    pub fn stubs_of_file(&self) -> Option<FileStubs> {
        let mut stubs = FileStubs::of(self.name());
        let flags: HashMap<&str, _> =
            self.interface().symbols.iter().map(|symbol| (&*symbol.name, symbol.flags)).collect();
        let values = &self.outline().values;
        for value in values.iter().filter(|value| !value.is_local()) {
            let of = match value.kind {
                Kind::OnCall => &value.name,
                Kind::OtherName if !values[value.of as usize].is_local() => &values[value.of as usize].name,
                Kind::OtherName => first_name_of(values, value.of).unwrap_or(&value.name),
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

/// Of a local function, the first of its other names that others know.
fn first_name_of(values: &[OutlinedValue], function: u32) -> Option<&str> {
    let is_name =
        |value: &&OutlinedValue| value.kind == Kind::OtherName && value.of == function && !value.is_local();
    values.iter().find(is_name).map(|value| &*value.name)
}
