//! Compiles functions of one module at one level, each by itself, on as many threads as call it.

use uruk_core::sync::{Arc, Mutex, Process};

use super::cached::IrCache;
use super::compile::IrCompiler;
use super::error::CompileError;
use super::part_cache::PartCache;
use super::shell::{PartForm, Shell};
use super::versions::retarget;
use crate::object::ObjectBuffer;
use crate::tiers::{FunctionShape, Tier};

/// A shell keeps what LLVM has read of types, constants and metadata. After so many functions it is given up.
const TAKEN_MAX: usize = 2_000;

/// A level, and shells of the module. Those of the upper tier keep what is inlined, so each tier has its own.
pub(super) struct FunctionCompiler {
    compiler: IrCompiler,
    tier: Tier,
    form: PartForm,
    verified: bool,
    /// Where to look first, and the process that may: a child of it could find a lock taken by a thread that it does not have.
    cache: Option<(PartCache, Process)>,
    /// Tried, never waited for: a thread of the parent may have held the lock when the process forked.
    shells: Mutex<Vec<Shell>>,
}

impl FunctionCompiler {
    pub(super) fn new(compiler: IrCompiler, tier: Tier, verified: bool) -> Self {
        let form = if tier == Tier::Upper { PartForm::Inlining } else { PartForm::Alone };
        Self { compiler, tier, form, verified, cache: None, shells: Mutex::new(Vec::new()) }
    }

    /// One of functions that an image has too. They use its variables, and what this processor has.
    pub(super) fn beside_image(compiler: IrCompiler, verified: bool) -> Self {
        Self { form: PartForm::BesideImage, ..Self::new(compiler, Tier::Upper, verified) }
    }

    /// The same, looking for functions of `source` in `cache` before they are compiled.
    pub(super) fn with_cache(self, cache: Option<&IrCache>, source: &ObjectBuffer) -> Self {
        let Self { compiler, tier, verified, .. } = &self;
        let functions = cache.map(|cache| cache.functions(compiler, *verified, source, *tier == Tier::Upper));
        Self { cache: functions.map(|functions| (functions, Process::current())), ..self }
    }

    /// Whether this process may look in a cache.
    pub(super) fn may_look(&self) -> bool {
        self.cache().is_some()
    }

    fn cache(&self) -> Option<&PartCache> {
        self.cache.as_ref().filter(|(_, process)| *process == Process::current()).map(|(cache, _)| cache)
    }

    /// Whether the function need probably not be compiled.
    pub(super) fn has(&self, function: u32) -> bool {
        self.cache().is_some_and(|cache| cache.has_function(function))
    }

    pub(super) fn compiler(&self) -> &IrCompiler {
        &self.compiler
    }

    /// Whether LLVM's verifier runs over functions.
    pub(super) fn verifies(&self) -> bool {
        self.verified
    }

    pub(super) fn tier(&self) -> Tier {
        self.tier
    }

    /// The function's size and shape.
    pub(super) fn shape(&self, source: &ObjectBuffer, function: u32) -> Result<FunctionShape, CompileError> {
        let read = || {
            let shell = self.lend(source, function)?;
            let shape = shell.shape(function)?;
            self.keep(shell);
            Ok(shape)
        };
        match self.cache() {
            Some(cache) => cache.shape(function, read),
            None => read(),
        }
    }

    /// An object of the function, of this name in messages.
    pub(super) fn compile(
        &self,
        source: &ObjectBuffer,
        function: u32,
        name: &Arc<str>,
    ) -> Result<ObjectBuffer, CompileError> {
        let compile = || self.compile_anew(source, function, name);
        match self.cache() {
            Some(cache) => cache.function(function, name, compile),
            None => compile(),
        }
    }

    fn compile_anew(
        &self,
        source: &ObjectBuffer,
        function: u32,
        name: &str,
    ) -> Result<ObjectBuffer, CompileError> {
        let mut shell = self.lend(source, function)?;
        let module = shell.take(function, name, self.form)?;
        if self.form == PartForm::BesideImage {
            retarget(&module.lock()?, self.compiler.target())?;
        }
        if self.verified {
            module.verify()?;
        }
        let object = self.compiler.compile(module)?;
        self.keep(shell);
        Ok(object)
    }

    /// A shell that the function is still in.
    fn lend(&self, source: &ObjectBuffer, function: u32) -> Result<Shell, CompileError> {
        let ready = self.shells.try_lock().and_then(|mut shells| {
            let position = shells.iter().rposition(|shell| !shell.taken.contains(&function))?;
            Some(shells.swap_remove(position))
        });
        ready.map_or_else(|| Shell::read(source, &self.compiler), Ok)
    }

    pub(super) fn keep(&self, shell: Shell) {
        if shell.taken.len() < TAKEN_MAX
            && let Some(mut shells) = self.shells.try_lock()
        {
            shells.push(shell);
        }
    }
}
