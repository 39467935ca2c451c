//! A module between the client and us.

use uruk::core::sync::Arc;
use uruk::pipeline::ir::ThreadSafeModule;

use crate::errors::Problem;
use crate::handles::Handled;
use crate::owned::{Context, Module};

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
    /// The same in a context of our own.
    pub(crate) fn into_own(self) -> Result<ThreadSafeModule, Problem> {
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
