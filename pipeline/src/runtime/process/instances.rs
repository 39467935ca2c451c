//! Variables that a program and a library both define, and that both have to agree on.

use std::ffi::CString;

use super::ProcessSymbols;
use crate::runtime::loaded::{Object, for_each_object};

impl ProcessSymbols {
    /// Whether a library's variable `name` is the one that counts, though the program has a vague definition of it. The rule is in
    /// `pipeline/README.md`, *The program's definition or a library's*.
    ///
    /// # Cost
    /// A lookup; for a name that a library has, a walk over the loaded objects too.
    pub fn has_instance_of(&self, name: &str) -> bool {
        let Some(found) = self.lookup(name) else { return false };
        let address = found.address.value();
        if self.program.as_ref().is_some_and(|program| program.has_not_begun(address)) {
            return false;
        }
        let Ok(name) = CString::new(name) else { return false };
        let mut counts = false;
        for_each_object(|object| {
            if object.range.contains(&address) {
                let is_there =
                    |symbol: &libc::Elf64_Sym| object.base.wrapping_add(symbol.st_value) == address;
                let definition = object.definition(&name, is_there);
                counts = definition.is_some_and(|symbol| is_shared(name.to_bytes(), &symbol, object));
            }
        });
        counts
    }
}

/// Whether a definition of a library is one instance of a variable that every user has.
fn is_shared(name: &[u8], symbol: &libc::Elf64_Sym, object: &Object) -> bool {
    const STT_OBJECT: u8 = 1;
    const STB_WEAK: u8 = 2;
    const STB_GNU_UNIQUE: u8 = 10;
    const STV_DEFAULT: u8 = 0;
    let is_instance = match symbol.st_info >> 4 {
        STB_GNU_UNIQUE => true,
        // A weak variable of C is a default that another may replace.
        STB_WEAK => name.starts_with(b"_Z"),
        _ => false,
    };
    let is_preemptible = symbol.st_other & 3 == STV_DEFAULT && !object.is_symbolic();
    is_instance && is_preemptible && symbol.st_info & 0xf == STT_OBJECT
}
