//! The time at which code is compiled and started that was not asked for yet.

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;
use uruk_pipeline::lazy::{CompileTraceFile, LazyCallFailure, LazyCallThroughManager, Speculator};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::object::CommonSymbols;

use crate::objects::{Linking, OnCall};

type OnLazyFailure = Box<dyn Fn(&LazyCallFailure) -> ExecutorAddr + Send + Sync>;

/// When functions are compiled, and when dylibs start.
#[derive(Default)]
pub(super) struct RunOptions {
    pub(super) on_call: Option<OnCall>,
    pub(super) on_lazy_failure: Option<OnLazyFailure>,
    pub(super) initializes_on_lookup: bool,
    pub(super) trace: Option<CompileTraceFile>,
}

impl RunOptions {
    /// The tables that files share, above `layer`.
    pub(super) fn linking(self, layer: Arc<ObjectLinkingLayer>, has_workers: bool) -> Arc<Linking> {
        let lazy = LazyCallThroughManager::new(ObjectLinkingLayer::clone(&layer))
            .with_speculator(Speculator::new(has_workers));
        if let Some(trace) = self.trace {
            lazy.speculator().trace_to(trace);
        }
        let lazy = match self.on_lazy_failure {
            Some(handler) => lazy.on_failure(handler),
            None => lazy,
        };
        Arc::new(Linking { commons: CommonSymbols::new(layer.clone()), layer, lazy, on_call: self.on_call })
    }
}
