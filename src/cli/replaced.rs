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
