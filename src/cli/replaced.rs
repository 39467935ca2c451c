//! Functions that allocate, of a program that brings its own.

use std::collections::HashMap;

use uruk::Jit;
use uruk::core::{ExecutorAddr, SymbolFlags};
use uruk::pipeline::runtime::allocation;

use super::run::RunError;

/// The program's own functions that allocate.
pub(super) fn replaced_allocation(jit: &Jit) -> Result<HashMap<String, ExecutorAddr>, RunError> {
    let names = allocation::function_names().map(|name| jit.session().intern(name));
    // The program's own definitions. A lookup would find the libraries' functions too.
    let mut replaced = HashMap::new();
    let defined = jit.main_dylib().flags(names).into_iter();
    for (name, _) in defined.filter(|(_, flags)| flags.contains(SymbolFlags::EXPORTED)) {
        let found = jit.lookup(name.as_str()).map_err(|source| RunError::Link { source })?;
        replaced.insert(name.as_str().to_owned(), found.address);
    }
    Ok(replaced)
}

/// Lets all libraries allocate as the program does, or a library that was loaded for it, if one of them replaces the functions for that. Says
/// whether the program does.
pub(super) fn take_over_allocation(jit: &Jit) -> Result<bool, RunError> {
    let replaced = replaced_allocation(jit)?;
    // SAFETY: the executable exports the forwarders. A definition of such a name has the function's type, natively
    // too; it is Ready, and nothing is ever unmapped. The compile threads are gone, and the program does not run yet.
    unsafe {
        allocation::replace(|name| {
            let of_libraries = || jit.process_symbols().function_of_libraries(name);
            replaced.get(name).copied().or_else(of_libraries)
        })?;
    }
    Ok(!replaced.is_empty())
}
