//! [`IrMaterializationUnit`]: the symbols of one module, compiled when the first of them is wanted.
//!
//! While it waits, a unit made from bitcode holds the bytes of the file and nothing of LLVM's: its symbols are
//! read without function bodies when the unit is made, and the module is read whole, in a context of its
//! own, by the worker that materializes it. So adding many files is quick, and reading them is shared out.

use std::fmt;
use std::sync::Arc;

use uruk_core::{
    ExecutionSession, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SharedError, SymbolName,
};

use super::error::CompileError;
use super::module::SourceKind;
use super::symbols::ModuleInterface;
use super::{JitTargetMachineBuilder, ThreadSafeModule};
use crate::layer::IrLayer;
use crate::object::{ObjectBuffer, intern_interface};

/// A module of LLVM IR waiting to be compiled. It is named after its file.
///
/// Source: ORC `IRMaterializationUnit`.
#[doc(alias = "IRMaterializationUnit")]
pub struct IrMaterializationUnit {
    source: Source,
    layer: Arc<dyn IrLayer>,
    interface: MaterializationInterface,
    /// What optimization must be told to keep.
    linkonce: Vec<SymbolName>,
    discarded: Vec<SymbolName>,
}

enum Source {
    Bitcode(ObjectBuffer),
    Module(ThreadSafeModule),
}

impl IrMaterializationUnit {
    /// Promises the symbols of a module that is in memory; `layer` is to compile it for `target`.
    ///
    /// # Errors
    /// [`CompileError`] if its module-level assembly cannot be assembled or its context is lost.
    pub fn from_module(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        target: &JitTargetMachineBuilder,
        module: ThreadSafeModule,
    ) -> Result<Self, CompileError> {
        let interface = ModuleInterface::of_module(&module, target)?;
        Ok(Self::promise(session, layer, &interface, Source::Module(module)))
    }

    /// Promises the symbols of a file of bitcode or textual IR; `layer` is to compile it for `target`.
    ///
    /// # Errors
    /// [`CompileError`] if the file is not LLVM IR, or is damaged where its symbols are. Damage further on
    /// fails the symbols when they are wanted.
    ///
    /// # Cost
    /// Bitcode: see [`ModuleInterface::of_bitcode`]. Text has to be read whole.
    pub fn from_source(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        target: &JitTargetMachineBuilder,
        source: ObjectBuffer,
    ) -> Result<Self, CompileError> {
        match SourceKind::of(&source)? {
            SourceKind::Assembly => {
                Self::from_module(session, layer, target, ThreadSafeModule::parse_assembly(&source)?)
            }
            SourceKind::Bitcode => {
                let interface = ModuleInterface::of_bitcode(&source, target)?;
                Ok(Self::promise(session, layer, &interface, Source::Bitcode(source)))
            }
        }
    }

    fn promise(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        module: &ModuleInterface,
        source: Source,
    ) -> Self {
        let symbols = module.symbols.iter().map(|symbol| (&*symbol.name, symbol.flags));
        let runs_code = module.has_initializers || module.has_finalizers;
        let interface = intern_interface(session, source.name(), symbols, runs_code);
        let linkonce = module.symbols.iter().filter(|symbol| symbol.linkonce);
        let linkonce = linkonce.map(|symbol| session.intern(&symbol.name)).collect();
        Self { source, layer, interface, linkonce, discarded: Vec::new() }
    }

    /// The module as this unit is to compile it.
    fn prepare(
        source: Source,
        linkonce: &[SymbolName],
        discarded: &[SymbolName],
    ) -> Result<ThreadSafeModule, CompileError> {
        let module = match source {
            Source::Bitcode(bitcode) => ThreadSafeModule::parse_bitcode(&bitcode)?,
            Source::Module(module) => module,
        };
        let locked = module.lock()?;
        for symbol in discarded {
            locked.discard(symbol.as_str());
        }
        for symbol in linkonce {
            // What was discarded is no definition any more, and is left alone.
            locked.keep(symbol.as_str());
        }
        drop(locked);
        Ok(module)
    }
}

impl MaterializationUnit for IrMaterializationUnit {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { source, layer, linkonce, discarded, .. } = *self;
        match Self::prepare(source, &linkonce, &discarded) {
            Ok(module) => layer.emit(responsibility, module),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        self.discarded.push(symbol.clone());
    }
}

impl Source {
    fn name(&self) -> &Arc<str> {
        match self {
            Self::Bitcode(bitcode) => bitcode.name(),
            Self::Module(module) => module.name(),
        }
    }
}

impl fmt::Debug for IrMaterializationUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrMaterializationUnit")
            .field("name", self.source.name())
            .field("discarded", &self.discarded)
            .finish_non_exhaustive()
    }
}

/// Defines the symbols of a file of bitcode or textual IR in `dylib`.
///
/// # Errors
/// [`CompileError`] if it cannot be read, `DefineError` if the dylib refuses its symbols.
pub fn define_ir(
    dylib: &JitDylib,
    layer: &Arc<dyn IrLayer>,
    target: &JitTargetMachineBuilder,
    source: ObjectBuffer,
) -> Result<(), SharedError> {
    let unit = IrMaterializationUnit::from_source(dylib.session(), Arc::clone(layer), target, source)
        .map_err(|error| -> SharedError { Arc::new(error) })?;
    dylib.define(Box::new(unit)).map_err(|error| -> SharedError { Arc::new(error) })
}
