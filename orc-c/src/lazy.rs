//! Functions that are compiled when they are first called.

use std::ffi::c_char;

use llvm_sys::error::LLVMErrorRef;
use uruk::core::{AliasMap, AliasTarget, ExecutorAddr};
use uruk::pipeline::lazy::LazyCallThroughManager;
use uruk::pipeline::linking::ObjectLinkingLayer;

use crate::boundary::{Array, Out};
use crate::dylibs;
use crate::engine::Session;
use crate::handles::{self, Handle, Handled};
use crate::names;
use crate::symbols::{self, AliasMapPair};
use crate::units::Unit;

/// An `LLVMOrcIndirectStubsManagerRef`. Stubs are the linker's, so that there is nothing in it.
struct Stubs;

impl Handled for Stubs {
    const KIND: &'static str = "LLVMOrcIndirectStubsManagerRef";
}

/// An `LLVMOrcLazyCallThroughManagerRef`.
struct CallThrough(LazyCallThroughManager);

impl Handled for CallThrough {
    const KIND: &'static str = "LLVMOrcLazyCallThroughManagerRef";
}

interface! {
    fn LLVMOrcCreateLocalIndirectStubsManager(_triple: *const c_char) -> Handle {
        Ok(handles::give(Stubs))
    }

    fn LLVMOrcDisposeIndirectStubsManager(stubs: Handle) {
        handles::take::<Stubs>(stubs).map(drop)
    }

    /// A call that fails goes on at `on_failure`. Without that it says why on stderr and ends the process.
    fn LLVMOrcCreateLocalLazyCallThroughManager(
        _triple: *const c_char,
        session: Handle,
        on_failure: u64,
        result: Out<Handle>,
    ) -> LLVMErrorRef {
        result.set(Handle::NULL);
        let jit = handles::get::<Session>(session)?.0.jit()?;
        let manager = LazyCallThroughManager::new(ObjectLinkingLayer::clone(jit.object_layer()));
        let manager = match on_failure {
            0 => manager,
            address => manager.on_failure(move |_| ExecutorAddr::new(address)),
        };
        result.set(handles::give(CallThrough(manager)));
        Ok(())
    }

    fn LLVMOrcDisposeLazyCallThroughManager(manager: Handle) {
        handles::take::<CallThrough>(manager).map(drop)
    }

    /// Takes the names over.
    fn LLVMOrcLazyReexports(
        manager: Handle,
        stubs: Handle,
        source: Handle,
        pairs: Array<AliasMapPair>,
        len: usize,
    ) -> Handle {
        let alias = |pair: &AliasMapPair| {
            let (name, source) = (names::take(pair.name), names::take(pair.source));
            Ok((name?, AliasTarget { source: source?, flags: pair.flags.into() }))
        };
        let aliases: AliasMap = symbols::all(pairs.of(len)?.iter().map(alias))?;
        handles::get::<Stubs>(stubs)?;
        let (manager, (_, source)) = (handles::get::<CallThrough>(manager)?, dylibs::get(source)?);
        Ok(Unit::give(manager.0.lazy_reexports(&source.0, aliases)))
    }
}
