//! [`PendingModule`]: the module that a unit hands to its layer, or the file from which it is still to be read.

use std::borrow::Cow;
use std::sync::Arc;

use uruk_core::{SerialQueue, SymbolName};

use super::ThreadSafeModule;
use super::cached::IrCache;
use super::compile::IrCompiler;
use super::error::CompileError;
use super::lazy_module::LazyModule;
use crate::cache::{Key, Miss};
use crate::object::ObjectBuffer;

/// A module to be compiled, and the definitions to be left out of it. It may be unread yet.
///
/// A layer that has the object already never reads it, so LLVM is not called.
#[derive(Debug)]
pub struct PendingModule {
    pub(super) source: Source,
    /// Whether LLVM's verifier runs when it is read.
    pub(super) verified: bool,
    /// Definitions that optimization must be told to keep.
    pub(super) kept: Vec<SymbolName>,
    /// Definitions to be left out, because others count.
    pub(super) discarded: Vec<SymbolName>,
    /// The key of its interface, if it was looked up by that.
    pub(super) key: Option<Key>,
}

/// Where a module is.
#[derive(Debug)]
pub(super) enum Source {
    /// Bitcode or text, read when the unit is materialized.
    Unread(ObjectBuffer),
    /// A module whose context others use too, that has addresses of this process in it, or that was found by its shape.
    Module(ThreadSafeModule),
    /// The variables of a module whose functions are compiled when they are called.
    Data(LazyModule),
    /// The object itself, which a cache had.
    Compiled(ObjectBuffer),
}

impl PendingModule {
    /// Its name in messages.
    pub fn name(&self) -> &Arc<str> {
        self.source.name()
    }

    /// The module as it is to be compiled. Reads it, if that has not happened.
    ///
    /// # Errors
    /// As [`ThreadSafeModule::parse`].
    pub fn prepare(self) -> Result<ThreadSafeModule, CompileError> {
        let module = match self.source {
            Source::Unread(source) if self.verified => ThreadSafeModule::parse(&source)?,
            Source::Unread(source) => ThreadSafeModule::parse_unverified(&source)?,
            Source::Module(module) => module,
            Source::Compiled(object) => {
                let message = "it is compiled already".to_owned();
                return Err(CompileError::Parse { module: object.name().clone(), message });
            }
            Source::Data(module) => {
                let data = module.data()?;
                if self.verified {
                    data.verify()?;
                }
                data
            }
        };
        let names = |symbols: &'_ [SymbolName]| -> Vec<String> {
            symbols.iter().map(|symbol| symbol.as_str().to_owned()).collect()
        };
        leave_out(&module, &names(&self.discarded), &names(&self.kept))?;
        Ok(module)
    }

    /// The object, if it is compiled already.
    pub(super) fn object(&self) -> Option<&ObjectBuffer> {
        match &self.source {
            Source::Compiled(object) => Some(object),
            _ => None,
        }
    }

    /// The queue of the context that the module is in.
    pub(super) fn serial_queue(&self) -> Option<SerialQueue> {
        self.source.serial_queue()
    }

    /// The key of the module's interface in `cache`.
    ///
    /// A module in memory is known by its bitcode. If its context is shared, others leave traces in that: it becomes a copy without them.
    pub(super) fn interface_key(&mut self, cache: &IrCache, compiler: &IrCompiler) -> Result<Key, Miss> {
        let uncacheable = |why: Cow<'static, str>| Miss::Uncacheable { why };
        match &mut self.source {
            _ if let Some(key) = self.key => Ok(key),
            Source::Unread(source) => Ok(cache.source_key(source)),
            Source::Data(module) => Ok(cache.data_key(module.source())),
            Source::Compiled(_) => Err(uncacheable("it came from the cache".into())),
            Source::Module(module) if module.is_bound_to_process() => {
                Err(uncacheable("it has addresses of this process in it".into()))
            }
            Source::Module(module) => {
                let bitcode = apart(module, compiler).and_then(|()| module.to_bitcode());
                let bitcode = bitcode.map_err(|error| uncacheable(error.to_string().into()))?;
                Ok(cache.source_key(&bitcode))
            }
        }
    }
}

/// Leaves definitions out of a module, and has optimization keep others.
pub(super) fn leave_out(
    module: &ThreadSafeModule,
    discarded: &[impl AsRef<str>],
    kept: &[impl AsRef<str>],
) -> Result<(), CompileError> {
    let locked = module.lock()?;
    for symbol in discarded {
        locked.discard(symbol.as_ref());
    }
    for symbol in kept {
        // A discarded symbol is no definition any more, and is left alone.
        locked.keep(symbol.as_ref());
    }
    Ok(())
}

/// Makes a module one that has a context of its own.
fn apart(module: &mut ThreadSafeModule, compiler: &IrCompiler) -> Result<(), CompileError> {
    if module.context().is_shared() {
        *module = compiler.canonical(module)?;
    }
    Ok(())
}

impl Source {
    /// A module until it is wanted: bitcode, so that its context goes. A context that others use stays in any case, and what has addresses of
    /// this process in it is known by the module alone.
    pub(super) fn waiting(module: ThreadSafeModule) -> Result<Self, CompileError> {
        if module.context().is_shared() || module.is_bound_to_process() {
            return Ok(Self::Module(module));
        }
        Ok(Self::Unread(module.to_bitcode()?))
    }

    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Self::Unread(source) | Self::Compiled(source) => source.name(),
            Self::Module(module) => module.name(),
            Self::Data(module) => module.name(),
        }
    }

    /// The queue of the context of a module in memory. `None` for unread bytes: they are read into a context of their own.
    pub(super) fn serial_queue(&self) -> Option<SerialQueue> {
        match self {
            Self::Module(module) => Some(module.context().serial_queue().clone()),
            Self::Unread(_) | Self::Data(_) | Self::Compiled(_) => None,
        }
    }
}
