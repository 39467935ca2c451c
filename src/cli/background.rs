//! Work beside the program: threads that compile better and ahead. It begins just before the program does, and ends with it.

use std::thread::available_parallelism;

use uruk::Jit;
use uruk::core::sync::Arc;
use uruk::pipeline::lazy::{CallOrder, CompileTraceFile, Speculator};
use uruk::pipeline::runtime::exit::{ExitError, on_exit};
use uruk::pipeline::runtime::thread_exit::on_end_of_thread;
use uruk::pipeline::tiers::Tiers;

use super::observe::Observers;
use super::order::Recording;
use super::report;

/// The threads that compile beside the program.
#[derive(Clone)]
pub(crate) struct Background {
    tiers: Option<Tiers>,
    speculator: Speculator,
}

/// The functions to be compiled ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) order: Option<CallOrder>,
    pub(crate) callees: bool,
}

impl Background {
    pub(crate) fn of(jit: &Jit) -> Self {
        Self { tiers: jit.tiers().cloned(), speculator: jit.speculator().clone() }
    }

    /// Begins to compile ahead, unless there is one core: what is done there ahead delays the program.
    pub(crate) fn begin(&self, ahead: &Ahead) {
        if available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            return;
        }
        if ahead.callees {
            self.speculator.speculate_callees();
        }
        if let Some(order) = &ahead.order {
            self.speculator.speculate(order);
        }
    }

    pub(crate) fn stop(&self) {
        self.speculator.stop();
        if let Some(tiers) = &self.tiers {
            tiers.stop();
        }
    }

    /// Sees to it that no thread is in the way of the process's end, which comes with the program's last thread if the first one has left
    /// `main` by `pthread_exit`. `exit` need not wait for it: see `cxa_filter`. The statistics say how much was done.
    pub(crate) fn end_with_the_program(
        &self,
        observers: &Arc<Observers>,
        recording: Option<Recording>,
        is_ahead: bool,
    ) -> Result<(), ExitError> {
        if self.tiers.is_some() || is_ahead {
            let this = self.clone();
            on_end_of_thread(move || this.stop())?;
        }
        if is_ahead {
            observers.watch_speculation(self.speculator.clone());
        }
        let this = self.clone();
        on_exit(move |_| {
            this.stop();
            let recorded = recording.map_or(Ok(()), |file| file.end(|| this.speculator.first_calls()));
            if let Err(error) = recorded {
                report::error(&error);
            }
            if let Some(failure) = this.speculator.trace().and_then(CompileTraceFile::failure) {
                report::warning("the trace is not whole", &failure);
            }
        })
    }
}
