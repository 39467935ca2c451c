//! A module between the client and us.

use llvm_sys::prelude::LLVMModuleRef;
use uruk::core::sync::Arc;
use uruk::pipeline::ir::ThreadSafeModule;

use crate::errors::Problem;
use crate::handles::Handled;
use crate::owned::{Context, Module};
use crate::passes;

/// An `LLVMOrcThreadSafeModuleRef`.
pub(crate) enum WrappedModule {
    /// The client's. Fields are dropped in this order.
    Client { module: Module, context: Arc<Context> },
    /// In a context of our own, on its way through a transform.
    Own(ThreadSafeModule),
}

impl Handled for WrappedModule {
    const KIND: &'static str = "LLVMOrcThreadSafeModuleRef";
}

impl WrappedModule {
    /// Lets the client, or code of LLVM's, have the module, with all passes run that the client has asked for.
    pub(crate) fn look<R>(&self, look: impl FnOnce(LLVMModuleRef) -> R) -> Result<R, Problem> {
        let settled = |module| passes::settle(module).map(|()| look(module));
        match self {
            Self::Client { module, .. } => settled(module.raw()),
            Self::Own(module) => module.with_module(|module| settled(module.as_mut_ptr()))?,
        }
    }

    /// How it lays out data; empty if it does not say.
    pub(crate) fn data_layout(&self) -> Result<String, Problem> {
        match self {
            Self::Client { module, .. } => Ok(module.data_layout()),
            Self::Own(module) => {
                let layout = module
                    .with_module(|module| module.get_data_layout().as_str().to_string_lossy().into_owned())?;
                Ok(layout)
            }
        }
    }

    /// The same in a context of our own.
    pub(crate) fn into_own(self) -> Result<ThreadSafeModule, Problem> {
        self.look(|_| ())?;
        match self {
            Self::Own(module) => Ok(module),
            Self::Client { module, context } => {
                let bitcode = module.to_bitcode();
                drop(module);
                drop(context);
                Ok(ThreadSafeModule::parse_unverified(&bitcode)?)
            }
        }
    }
}
