//! The other process that runs an engine's code, if there is one.

use uruk_core::DefinitionGenerator;
use uruk_core::sync::{Arc, Mutex};
use uruk_pipeline::executor::Startup;
use uruk_pipeline::linking::LowAddresses;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::remote::{RemoteExecutor, RemoteProgram, RemoteSymbolsGenerator};

use crate::error::JitError;

/// The process that runs the code.
pub(crate) struct Remote {
    pub(crate) executor: RemoteExecutor,
    /// Held while initialisers run there: another thread that initialises waits for them.
    starting: Mutex<()>,
}

impl Remote {
    /// # Errors
    /// [`JitError::Remote`] if the program cannot be started, or does not listen.
    pub(crate) fn reach(program: &RemoteProgram) -> Result<Self, JitError> {
        Ok(Self { executor: RemoteExecutor::reach(program)?, starting: Mutex::new(()) })
    }

    /// The symbols of its libraries.
    pub(crate) fn libraries(&self, low: &Arc<LowAddresses>) -> Arc<dyn DefinitionGenerator> {
        let low = low.clone();
        Arc::new(RemoteSymbolsGenerator::new(self.executor.clone()).moving(move |name| low.is_close(name)))
    }

    /// Runs there what has been linked and was not started yet.
    ///
    /// # Errors
    /// [`JitError::Remote`] if the executor has gone.
    pub(crate) fn start_what_is_new(&self, platform: &Platform) -> Result<(), JitError> {
        let _others_wait = self.starting.lock();
        let startup = platform.take_startup();
        if startup == Startup::default() {
            return Ok(());
        }
        Ok(self.executor.start(&startup)?)
    }
}
