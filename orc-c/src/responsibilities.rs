//! The functions by which a unit of the client meets its responsibility.

use llvm_sys::error::LLVMErrorRef;
use uruk::core::sync::Arc;

use crate::boundary::{Array, Out, free_array, into_array};
use crate::dylib;
use crate::engine;
use crate::errors::Problem;
use crate::handles::{self, Handle};
use crate::responsibility::{CDependenceGroup, Responsibility};
use crate::symbols::{FlagsMapPair, SymbolMapPair, lend_flags, take_addresses, take_flags, take_names};
use crate::units::Unit;

fn get(responsibility: Handle) -> Result<Arc<Responsibility>, Problem> {
    handles::get(responsibility)
}

interface! {
    fn LLVMOrcDisposeMaterializationResponsibility(responsibility: Handle) {
        handles::take::<Responsibility>(responsibility).map(drop)
    }

    fn LLVMOrcMaterializationResponsibilityGetTargetDylib(responsibility: Handle) -> Handle {
        Ok(dylib::handle(get(responsibility)?.dylib()))
    }

    fn LLVMOrcMaterializationResponsibilityGetExecutionSession(responsibility: Handle) -> Handle {
        engine::of_session(get(responsibility)?.dylib().session())?.session_handle()
    }

    fn LLVMOrcMaterializationResponsibilityGetSymbols(responsibility: Handle, len: Out<usize>) -> *mut FlagsMapPair {
        len.set(0);
        let responsibility = get(responsibility)?;
        let symbols = responsibility.symbols();
        let pairs = lend_flags(&symbols, &mut responsibility.lent().lock());
        let array = into_array(&pairs)?;
        len.set(pairs.len());
        Ok(array)
    }

    fn LLVMOrcDisposeCSymbolFlagsMap(pairs: *mut FlagsMapPair) {
        free_array(pairs);
        Ok(())
    }

    fn LLVMOrcMaterializationResponsibilityGetInitializerSymbol(responsibility: Handle) -> Handle {
        let responsibility = get(responsibility)?;
        let initializer = responsibility.look(|duty| duty.initializer_symbol().cloned())?;
        let mut lent = responsibility.lent().lock();
        Ok(initializer.map_or(Handle::NULL, |initializer| lent.lend(&initializer)))
    }

    fn LLVMOrcMaterializationResponsibilityGetRequestedSymbols(responsibility: Handle, len: Out<usize>) -> *mut Handle {
        len.set(0);
        let responsibility = get(responsibility)?;
        let mut requested = responsibility.look(|duty| duty.requested_symbols())?;
        requested.sort();
        let mut lent = responsibility.lent().lock();
        let entries: Vec<_> = requested.iter().map(|name| lent.lend(name)).collect();
        let array = into_array(&entries)?;
        len.set(entries.len());
        Ok(array)
    }

    fn LLVMOrcDisposeSymbols(symbols: *mut Handle) {
        free_array(symbols);
        Ok(())
    }

    /// Takes the names over. Lookups are answered when the last address has come.
    fn LLVMOrcMaterializationResponsibilityNotifyResolved(
        responsibility: Handle,
        pairs: Array<SymbolMapPair>,
        len: usize,
    ) -> LLVMErrorRef {
        let addresses = take_addresses(pairs.of(len)?)?;
        get(responsibility)?.resolve(&addresses)
    }

    fn LLVMOrcMaterializationResponsibilityNotifyEmitted(
        responsibility: Handle,
        groups: Array<CDependenceGroup>,
        len: usize,
    ) -> LLVMErrorRef {
        get(responsibility)?.emit(groups.of(len)?)
    }

    fn LLVMOrcMaterializationResponsibilityDefineMaterializing(
        responsibility: Handle,
        pairs: Array<FlagsMapPair>,
        len: usize,
    ) -> LLVMErrorRef {
        let symbols = take_flags(pairs.of(len)?)?;
        get(responsibility)?.compiling(|duty| Ok(duty.define_materializing(symbols).map(drop)?))
    }

    fn LLVMOrcMaterializationResponsibilityFailMaterialization(responsibility: Handle) {
        get(responsibility)?.fail();
        Ok(())
    }

    /// Takes the unit over in any case.
    fn LLVMOrcMaterializationResponsibilityReplace(responsibility: Handle, unit: Handle) -> LLVMErrorRef {
        let unit = Unit::take(unit)?;
        get(responsibility)?.replace(unit)
    }

    fn LLVMOrcMaterializationResponsibilityDelegate(
        responsibility: Handle,
        symbols: Array<Handle>,
        len: usize,
        result: Out<Handle>,
    ) -> LLVMErrorRef {
        result.set(Handle::NULL);
        let names = take_names(symbols.of(len)?)?;
        let part = get(responsibility)?.compiling(|duty| Ok(Responsibility::give(duty.delegate(names)?)))?;
        result.set(part);
        Ok(())
    }
}
