//! The target that code is generated for.
//!
//! Holds: code is position independent, in the small code model unless the module was compiled for another,
//! with native thread-local storage, and initializers go to `.init_array`.

use std::sync::{Arc, OnceLock};

use llvm_sys::target::{
    LLVM_InitializeNativeAsmParser, LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget,
};
use llvm_sys::target_machine::{LLVMGetDefaultTargetTriple, LLVMGetHostCPUFeatures, LLVMGetHostCPUName};

use serde::{Deserialize, Serialize};

use super::error::CompileError;
use super::ffi::{take_message, uruk_llvm_initialize_aarch64, uruk_llvm_machine_level};
use super::library;
use super::machines::with_machine;
use super::module::LockedModule;
use super::optimize::OptimizationLevel;
use super::target_machine::TargetMachine;
use crate::arch::Architecture;
use crate::object::ObjectBuffer;

/// How hard code generation tries, apart from the passes over the IR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CodegenLevel {
    /// Quickly: fast instruction selection, no scheduling.
    None,
    /// A little.
    Less,
    /// As compilers at `-O2`.
    #[default]
    Default,
    /// As compilers at `-O3`.
    Aggressive,
}

impl From<OptimizationLevel> for CodegenLevel {
    /// The level compilers pair with that many passes.
    fn from(level: OptimizationLevel) -> Self {
        match level {
            OptimizationLevel::O0 => Self::None,
            OptimizationLevel::O1 => Self::Less,
            OptimizationLevel::O2 | OptimizationLevel::Os | OptimizationLevel::Oz => Self::Default,
            OptimizationLevel::O3 => Self::Aggressive,
        }
    }
}

/// How far apart code and data may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CodeModel {
    /// All of a program within 2 GiB of itself.
    #[default]
    Small,
    /// All but large data, which may be anywhere.
    Medium,
    /// Everything may be anywhere.
    Large,
}

impl CodeModel {
    /// LLVM's number for a model; negative for none. Its models below the small one are that, here.
    pub(super) const fn from_llvm(model: i32) -> Option<Self> {
        match model {
            3 => Some(Self::Medium),
            4 => Some(Self::Large),
            0..3 => Some(Self::Small),
            _ => None,
        }
    }
}

/// From how many bytes on compilers take data to be large in the medium code model.
pub(super) const LARGE_DATA_THRESHOLD_BYTES: u64 = 65_535;

/// Everything that decides which target machine compiles a module. Part of a cache key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TargetOptions {
    /// Architecture, vendor and operating system.
    pub triple: String,
    /// The processor to tune for and whose instructions to use.
    pub cpu: String,
    /// Instruction sets to add (`+avx2`) and to avoid (`-avx512f`), separated by commas.
    pub features: String,
    /// How hard code generation tries.
    pub codegen_level: CodegenLevel,
    /// How far apart code and data may be. A module that was compiled for a model is compiled for that one.
    pub code_model: CodeModel,
    /// From how many bytes on data may be anywhere, where the code model knows the difference.
    pub large_data_threshold_bytes: u64,
    /// Whether each function has a section of its own, so that linking can leave out unused ones.
    pub function_sections: bool,
    /// Whether each variable has a section of its own.
    pub data_sections: bool,
}

/// Decides on a target; hands out target machines for it, one per thread.
///
/// LLVM identifies this machine, when something is compiled: a program that compiles nothing does without LLVM.
///
/// ORC: `JITTargetMachineBuilder`.
#[derive(Clone, Debug)]
#[doc(alias = "JITTargetMachineBuilder")]
pub struct JitTargetMachineBuilder {
    /// The chosen options; without triple, processor and features, if they are this machine's.
    decided: TargetOptions,
    is_host: bool,
    /// The same with this machine's names.
    options: OnceLock<Arc<TargetOptions>>,
    /// Shared by all builders that were made of one: their data layout is the same.
    data_layout: Arc<OnceLock<Box<str>>>,
}

impl TargetOptions {
    /// The options that change code, but for those of the machine.
    pub(super) fn numbers(&self) -> Vec<(&'static str, u64)> {
        let TargetOptions {
            triple: _,
            cpu: _,
            features: _,
            codegen_level,
            code_model,
            large_data_threshold_bytes,
            function_sections,
            data_sections,
        } = self;
        vec![
            ("codegen level", *codegen_level as u64),
            ("code model", *code_model as u64),
            ("large data from", *large_data_threshold_bytes),
            ("function sections", u64::from(*function_sections)),
            ("data sections", u64::from(*data_sections)),
        ]
    }
}

impl JitTargetMachineBuilder {
    /// The processor this program runs on, with all that it can do.
    ///
    /// # Errors
    /// [`CompileError::Target`] on a processor that is no x86-64. If this LLVM cannot generate code for one that is, the
    /// first module says so.
    ///
    /// # Cost
    /// LLVM is not called.
    pub fn host() -> Result<Self, CompileError> {
        if !cfg!(target_arch = "x86_64") {
            let message = "code is linked for x86-64 alone".to_owned();
            return Err(CompileError::Target { subject: std::env::consts::ARCH.into(), message });
        }
        let decided = TargetOptions {
            triple: String::new(),
            cpu: String::new(),
            features: String::new(),
            codegen_level: CodegenLevel::default(),
            code_model: CodeModel::default(),
            large_data_threshold_bytes: LARGE_DATA_THRESHOLD_BYTES,
            function_sections: false,
            data_sections: false,
        };
        Ok(Self { is_host: true, ..Self::unchecked(decided) })
    }

    /// The processors of an architecture: this one with all that it can do, if that is of it; otherwise those that have what all of them have.
    ///
    /// # Errors
    /// As of [`host`](Self::host). If this LLVM cannot generate code for the architecture, the first module says so.
    ///
    /// # Cost
    /// LLVM is not called.
    pub fn of_architecture(architecture: Architecture) -> Result<Self, CompileError> {
        let host = Self::host()?;
        if architecture == Architecture::HOST {
            return Ok(host);
        }
        let (triple, cpu) = (architecture.triple().to_owned(), "generic".to_owned());
        Ok(Self::unchecked(TargetOptions { triple, cpu, ..host.decided }))
    }

    /// The architecture that code is generated for. `None` if it is none that is linked.
    pub fn architecture(&self) -> Option<Architecture> {
        if self.is_host { Some(Architecture::HOST) } else { Architecture::of_triple(&self.decided.triple) }
    }

    /// The target of these `options`.
    ///
    /// # Errors
    /// [`CompileError::Target`] if this LLVM cannot generate code for them.
    pub fn new(options: TargetOptions) -> Result<Self, CompileError> {
        let target = Self::unchecked(options);
        target.data_layout()?;
        Ok(target)
    }

    /// The target of a target machine that a compiler has set up: its triple, processor, features, and level of code generation. Code is
    /// position independent and in the small model, even if the machine says otherwise. Other options of the machine are not taken over.
    ///
    /// # Errors
    /// [`CompileError::Target`] if this LLVM cannot generate code for it.
    ///
    /// ORC: `JITTargetMachineBuilder`, made of a `TargetMachine`.
    pub fn of_machine(machine: &inkwell::targets::TargetMachine) -> Result<Self, CompileError> {
        // SAFETY: the machine is alive, and the shim reads a field of it.
        let codegen_level = match unsafe { uruk_llvm_machine_level(machine.as_mut_ptr()) } {
            0 => CodegenLevel::None,
            1 => CodegenLevel::Less,
            3.. => CodegenLevel::Aggressive,
            _ => CodegenLevel::Default,
        };
        let host = Self::host()?.with_codegen_level(codegen_level);
        let [triple, cpu, features] = [
            machine.get_triple().as_str().to_string_lossy().into_owned(),
            machine.get_cpu().to_string_lossy().into_owned(),
            machine.get_feature_string().to_string_lossy().into_owned(),
        ];
        let options = host.options();
        if [&options.triple, &options.cpu, &options.features] == [&triple, &cpu, &features] {
            return Ok(host);
        }
        Self::new(TargetOptions { triple, cpu, features, ..options.clone() })
    }

    fn unchecked(decided: TargetOptions) -> Self {
        Self { decided, is_host: false, options: OnceLock::new(), data_layout: Arc::default() }
    }

    /// The same target with another level of code generation.
    #[must_use]
    pub fn with_codegen_level(self, level: CodegenLevel) -> Self {
        self.changed(|decided| decided.codegen_level = level)
    }

    /// The same target with, or without, a section for each function and each variable.
    #[must_use]
    pub fn with_sections(self, function_sections: bool, data_sections: bool) -> Self {
        self.changed(|decided| {
            decided.function_sections = function_sections;
            decided.data_sections = data_sections;
        })
    }

    /// The same machine with other options than its names.
    pub(super) fn with_options(self, options: TargetOptions) -> Self {
        self.changed(|decided| *decided = options)
    }

    fn changed(mut self, change: impl FnOnce(&mut TargetOptions)) -> Self {
        change(&mut self.decided);
        self.options = OnceLock::new();
        self
    }

    /// The same target in the code model that `module` was compiled for, if it was compiled for one.
    pub(super) fn for_module(&self, module: &LockedModule<'_>) -> Self {
        let Some((code_model, large_data_threshold_bytes)) = module.code_model() else {
            return self.clone();
        };
        self.clone().changed(|decided| {
            decided.code_model = code_model;
            decided.large_data_threshold_bytes = large_data_threshold_bytes;
        })
    }

    /// The complete options.
    ///
    /// # Cost
    /// LLVM identifies this machine, once in a process.
    ///
    /// # Panics
    /// If the machine is this one, and LLVM is loaded late (feature `lazy-llvm`) and cannot be. After a successful compilation that cannot
    /// happen.
    pub fn options(&self) -> &TargetOptions {
        self.options.get_or_init(|| Arc::new(self.complete()))
    }

    fn complete(&self) -> TargetOptions {
        let decided = self.decided.clone();
        if !self.is_host {
            return decided;
        }
        let [triple, cpu, features] = host_names().clone();
        TargetOptions { triple, cpu, features, ..decided }
    }

    /// The chosen options, without calling LLVM. Triple, processor and features are empty if they are [this machine's](Self::is_host).
    pub(super) fn decided(&self) -> &TargetOptions {
        &self.decided
    }

    /// Whether it is the machine that this program runs on.
    pub fn is_host(&self) -> bool {
        self.is_host
    }

    /// How the target lays out data, as LLVM writes it.
    ///
    /// # Errors
    /// [`CompileError::Target`] if this LLVM cannot generate code for it.
    pub fn data_layout(&self) -> Result<&str, CompileError> {
        if let Some(layout) = self.data_layout.get() {
            return Ok(layout);
        }
        let layout = self.with_machine(TargetMachine::data_layout)?;
        Ok(self.data_layout.get_or_init(|| layout.into()))
    }

    /// Makes LLVM ready to generate code for it.
    fn initialize(&self) -> Result<(), CompileError> {
        static AARCH64: OnceLock<()> = OnceLock::new();
        initialize()?;
        if !self.is_host && self.architecture() == Some(Architecture::AArch64) {
            // SAFETY: LLVM is loaded. Its registry of targets is written here alone and in `initialize`, each once.
            AARCH64.get_or_init(|| unsafe { uruk_llvm_initialize_aarch64() });
        }
        Ok(())
    }

    /// Lends this thread's target machine for these options.
    pub(super) fn with_machine<R>(
        &self,
        use_machine: impl FnOnce(&TargetMachine) -> R,
    ) -> Result<R, CompileError> {
        self.initialize()?;
        with_machine(self.options(), use_machine)
    }

    /// The assembly of `module`, which is used up: from a machine of its own, so that this thread's make the same objects afterwards.
    pub(super) fn assembly_of(&self, module: &LockedModule<'_>) -> Result<ObjectBuffer, CompileError> {
        self.initialize()?;
        TargetMachine::create(self.options())?.emit_assembly(module)
    }
}

/// LLVM's names of this machine: triple, processor, features.
fn host_names() -> &'static [String; 3] {
    static NAMES: OnceLock<[String; 3]> = OnceLock::new();
    NAMES.get_or_init(|| {
        library::load().unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: the three functions have no obligations and answer with strings of our own.
        unsafe {
            [LLVMGetDefaultTargetTriple(), LLVMGetHostCPUName(), LLVMGetHostCPUFeatures()]
                .map(|name| take_message(name))
        }
    })
}

/// Makes LLVM ready to generate code for the host. Once is enough, and it may be called again.
///
/// # Errors
/// [`CompileError::Library`].
pub(super) fn initialize() -> Result<(), CompileError> {
    static DONE: OnceLock<()> = OnceLock::new();
    library::load()?;
    DONE.get_or_init(|| {
        // SAFETY: registering a target has no obligations besides not doing it twice at once. It fails only
        // where LLVM has no target for the host, which `TargetMachine::create` then reports.
        unsafe {
            let _ = LLVM_InitializeNativeTarget();
            let _ = LLVM_InitializeNativeAsmPrinter();
            let _ = LLVM_InitializeNativeAsmParser();
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_triple_is_named() {
        let mut options = JitTargetMachineBuilder::host().expect("host target").options().clone();
        options.triple = "pdp11-dec-unix".to_owned();
        let error = JitTargetMachineBuilder::new(options).expect_err("no such target");
        assert!(error.to_string().contains("pdp11"), "{error}");
    }

    #[test]
    fn a_machine_gives_its_processor_and_its_level() {
        use inkwell::OptimizationLevel;
        use inkwell::targets::{CodeModel, RelocMode, Target, TargetMachine};

        initialize().expect("a native target");
        let triple = TargetMachine::get_default_triple();
        let target = Target::from_triple(&triple).expect("the native target");
        let levels = [
            (OptimizationLevel::None, CodegenLevel::None),
            (OptimizationLevel::Less, CodegenLevel::Less),
            (OptimizationLevel::Default, CodegenLevel::Default),
            (OptimizationLevel::Aggressive, CodegenLevel::Aggressive),
        ];
        for (level, expected) in levels {
            let machine = target.create_target_machine(
                &triple,
                "x86-64-v2",
                "+avx",
                level,
                RelocMode::Static,
                CodeModel::Large,
            );
            let machine = machine.expect("a machine");
            let options = JitTargetMachineBuilder::of_machine(&machine).expect("a target").options().clone();
            assert_eq!((&*options.cpu, &*options.features), ("x86-64-v2", "+avx"));
            assert_eq!((options.codegen_level, options.code_model), (expected, super::CodeModel::Small));
        }
        let [triple_of_host, cpu, features] = host_names().clone();
        let machine = target.create_target_machine(
            &triple,
            &cpu,
            &features,
            OptimizationLevel::None,
            RelocMode::PIC,
            CodeModel::Small,
        );
        let host = JitTargetMachineBuilder::of_machine(&machine.expect("a machine")).expect("a target");
        assert!(host.is_host(), "{triple_of_host}");
    }
}
