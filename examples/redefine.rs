//! Two dylibs, and a definition that is taken back and given again.
//!
//! `cargo run --example redefine --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::{ExecutionSession, JitDylibLookupFlags, SymbolFlags, SymbolMap, absolute_symbols};
use uruk::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let session = ExecutionSession::new();
    let program = session.create_jit_dylib("program")?;
    let library = session.create_jit_dylib("library")?;
    program.add_to_link_order(&library, JitDylibLookupFlags::MatchExportedSymbolsOnly)?;

    let limit = session.intern("limit");
    let define = |address| -> SymbolMap {
        let definition = ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED);
        [(limit.clone(), definition)].into_iter().collect()
    };
    let first = library.create_tracker();
    library.define_with_tracker(absolute_symbols(define(0x1000)), &first)?;

    // The program finds the symbols of its library.
    let found = session.lookup_symbol(&program.link_order(), &limit)?;
    assert_eq!(found.address.value(), 0x1000);

    // All symbols of a tracker are removed at once; the name is free again.
    first.remove()?;
    assert!(matches!(
        session.lookup_symbol(&program.link_order(), &limit),
        Err(LookupError::NotFound { .. })
    ));
    library.define(absolute_symbols(define(0x2000)))?;
    let found = session.lookup_symbol(&program.link_order(), &limit)?;
    assert_eq!(found.address.value(), 0x2000);
    println!("limit moved to {}", found.address);
    session.close()?;
    Ok(())
}
