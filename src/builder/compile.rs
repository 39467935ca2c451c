//! How modules of LLVM IR are compiled.

use uruk_core::sync::Arc;
use uruk_pipeline::helpers::{HelperPool, Helpers};
use uruk_pipeline::ir::{
    CodegenLevel, CompileError, Dump, IrCompileLayer, IrCompiler, JitTargetMachineBuilder, ModuleVersion,
    OptimizationLevel, OptimizationPipeline, Partition, helper_build,
};
use uruk_pipeline::object::ObjectLayer as _;
use uruk_pipeline::tiers::{TierPolicy, Tiers};

use crate::cache::OpenCache;
use crate::error::JitError;
use crate::modules::{Modules, OnWhole};
use crate::objects::Linking;

/// How modules of LLVM IR are compiled.
pub(super) struct CompileOptions {
    pub(super) target: Option<JitTargetMachineBuilder>,
    pub(super) codegen_level: CodegenLevel,
    pub(super) pipeline: OptimizationPipeline,
    pub(super) partition: Partition,
    pub(super) verifies_ir: bool,
    /// Of functions that are compiled by themselves. Otherwise as the debugger and the profiler need it.
    pub(super) keeps_debug_info: Option<bool>,
    pub(super) tiers: Option<Arc<dyn TierPolicy>>,
    pub(super) on_whole: Option<Arc<OnWhole>>,
    pub(super) dump: Option<Dump>,
    /// The processes that compile, in place of this one.
    pub(super) helpers: Option<Helpers>,
    /// Whether each function and each variable has a section.
    pub(super) has_sections: bool,
    /// The other processors that modules are compiled for.
    pub(super) versions: Arc<[ModuleVersion]>,
}

impl CompileOptions {
    /// `-O2`, verified, without a cache.
    pub(super) fn new() -> Self {
        Self {
            target: None,
            codegen_level: CodegenLevel::Default,
            pipeline: OptimizationPipeline::level(OptimizationLevel::O2),
            partition: Partition::default(),
            verifies_ir: true,
            keeps_debug_info: None,
            tiers: None,
            on_whole: None,
            dump: None,
            helpers: None,
            has_sections: false,
            versions: Arc::default(),
        }
    }

    /// The layer that compiles modules, above `linking`. A debugger or profiler asks for lines if the engine `is_debugged`.
    ///
    /// # Errors
    /// [`JitError::Compile`].
    pub(super) fn modules(
        self,
        linking: Arc<Linking>,
        cache: &OpenCache,
        has_workers: bool,
        is_debugged: bool,
    ) -> Result<Modules, JitError> {
        if self.helpers.is_some() && !self.versions.is_empty() {
            let what = "images with several targets".to_owned();
            return Err(CompileError::NotContained { what }.into());
        }
        if self.helpers.is_some() && linking.layer.collected().is_some() {
            let what = "images, whose sources are read in this process".to_owned();
            return Err(CompileError::NotContained { what }.into());
        }
        let refuses_calls = self.helpers.is_some() && (linking.on_call.is_some() || self.tiers.is_some());
        if refuses_calls {
            let what = "functions that are compiled when they are called".to_owned();
            return Err(CompileError::NotContained { what }.into());
        }
        let runs_on = linking.layer.architecture();
        let target = self.target.map_or_else(|| JitTargetMachineBuilder::of_architecture(runs_on), Ok)?;
        if target.architecture() != Some(runs_on) {
            let message = format!("code of this engine runs on {runs_on}");
            return Err(CompileError::Target { subject: (&*target.options().triple).into(), message }.into());
        }
        let target = target.with_codegen_level(self.codegen_level);
        let target = if self.has_sections { target.with_sections(true, true) } else { target };
        let keeps_debug_info = self.keeps_debug_info.unwrap_or(is_debugged);
        let compiler = IrCompiler::new(target.clone(), self.pipeline)
            .with_partition(self.partition)
            .with_versions(self.versions);
        let compiler = compiler.with_debug_info(keeps_debug_info);
        let compiler = self.dump.iter().cloned().fold(compiler, IrCompiler::with_dump);
        let compiler = match self.helpers {
            Some(helpers) => compiler.with_helpers(Arc::new(HelperPool::new(helpers, helper_build())))?,
            None => compiler,
        };
        let of_modules = cache.entries.as_ref().map(|entries| Arc::new(entries.of_modules(&compiler)));
        if of_modules.is_none() {
            compiler.check_pipeline()?;
        }
        let layer = IrCompileLayer::new(compiler, linking.layer.clone());
        let layer = Arc::new(of_modules.into_iter().fold(layer, IrCompileLayer::with_cache));
        let tiers = self.tiers.map(|policy| {
            let soon = target.clone().with_codegen_level(OptimizationLevel::O0.into());
            let soon = IrCompiler::new(soon, OptimizationPipeline::level(OptimizationLevel::O0));
            let soon = soon.with_kept(layer.compiler().kept().clone());
            let soon =
                self.dump.into_iter().fold(soon.with_debug_info(keeps_debug_info), IrCompiler::with_dump);
            (soon, Tiers::new(policy, has_workers))
        });
        Ok(Modules { linking, layer, target, verifies_ir: self.verifies_ir, tiers, on_whole: self.on_whole })
    }
}
