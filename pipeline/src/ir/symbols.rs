//! What a module defines for others, found out without compiling it.
//!
//! Left out: what has no name or keeps it to itself (`private`, `internal`, `llvm.*`), what is only a copy
//! (`available_externally`), and what code generation adds later (`DW.ref.*`, constant pools). Symbols of
//! module-level assembly are found by assembling it alone, which is exact where scanning the text is not.

use uruk_core::SymbolFlags;

use super::ThreadSafeContext;
use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::{module_bits, symbol_bits};
use super::module::{LockedModule, ThreadSafeModule, with_lazy_bitcode};
use super::optimize::OptimizationPipeline;
use super::target::JitTargetMachineBuilder;
use crate::object::{ObjectBuffer, ObjectInterface};

/// The symbols a module defines, in the order of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInterface {
    /// Name and kind of each definition others can see.
    pub symbols: Vec<ModuleSymbol>,
    /// Whether the module has code to run before the program.
    pub has_initializers: bool,
    /// Whether the module has code to run after the program.
    pub has_finalizers: bool,
}

/// One definition of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSymbol {
    /// Its name, as linkers see it.
    pub name: Box<str>,
    /// What it is.
    pub flags: SymbolFlags,
    /// Whether optimization may drop it when the module itself does not use it.
    pub(super) linkonce: bool,
}

impl ModuleInterface {
    /// Reads the interface of a module.
    ///
    /// # Errors
    /// [`CompileError`] if the module's assembly cannot be assembled, or its context is lost.
    ///
    /// # Cost
    /// 20 ns a symbol; 0.7 ms more if there is module-level assembly.
    pub fn of_module(
        module: &ThreadSafeModule,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        Self::of_locked(&module.lock()?, target)
    }

    /// Reads the interface of a module from its bitcode, leaving function bodies unread.
    ///
    /// # Errors
    /// [`CompileError::Parse`] for what is no bitcode or cut off too early to tell; damage further on is
    /// found when the module is read whole.
    ///
    /// # Cost
    /// 10 ms for SQLite (2 MB of bitcode), a fifteenth of reading it whole.
    pub fn of_bitcode(
        bitcode: &ObjectBuffer,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        with_lazy_bitcode(bitcode, |module| Self::of_locked(module, target))?
    }

    /// The names alone, as [`ArchiveIndex::read`](crate::object::ArchiveIndex::read) asks for them.
    pub fn into_names(self) -> Vec<Box<str>> {
        self.symbols.into_iter().map(|symbol| symbol.name).collect()
    }

    pub(super) fn of_locked(
        module: &LockedModule<'_>,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        let mut interface = Self::default();
        let bits = module.symbols(|name, bits| interface.symbols.push(ModuleSymbol::new(name, bits)));
        interface.has_initializers = bits & module_bits::INITIALIZERS != 0;
        interface.has_finalizers = bits & module_bits::FINALIZERS != 0;
        let assembly = module.inline_assembly();
        if !assembly.is_empty() {
            let object = assemble(module, &assembly, target)?;
            interface.add_assembly(&object).map_err(|error| CompileError::Codegen {
                module: module.name().clone(),
                message: format!("module-level assembly: {error}"),
            })?;
        }
        Ok(interface)
    }

    fn add_assembly(&mut self, object: &ObjectBuffer) -> Result<(), crate::object::ObjectError> {
        let assembled = ObjectInterface::read(object)?;
        self.has_initializers |= assembled.has_initializers;
        self.has_finalizers |= assembled.has_finalizers;
        self.symbols.extend(assembled.defined.iter().map(|symbol| ModuleSymbol {
            name: symbol.name.into(),
            flags: symbol.flags,
            linkonce: false,
        }));
        Ok(())
    }
}

impl ModuleSymbol {
    fn new(name: &str, bits: u32) -> Self {
        let mut flags = SymbolFlags::empty();
        flags.set(SymbolFlags::EXPORTED, bits & symbol_bits::EXPORTED != 0);
        flags.set(SymbolFlags::WEAK, bits & symbol_bits::WEAK != 0);
        flags.set(SymbolFlags::COMMON, bits & symbol_bits::COMMON != 0);
        flags.set(SymbolFlags::CALLABLE, bits & symbol_bits::CALLABLE != 0);
        flags.set(SymbolFlags::THREAD_LOCAL, bits & symbol_bits::THREAD_LOCAL != 0);
        Self { name: name.into(), flags, linkonce: bits & symbol_bits::LINKONCE != 0 }
    }
}

/// An object made of the module's assembly alone.
fn assemble(
    module: &LockedModule<'_>,
    assembly: &[u8],
    target: &JitTargetMachineBuilder,
) -> Result<ObjectBuffer, CompileError> {
    let alone = ThreadSafeModule::new(&ThreadSafeContext::new(), module.name().clone());
    alone.lock()?.set_inline_assembly(assembly);
    IrCompiler::new(target.clone(), OptimizationPipeline::none()).compile(alone)
}
