//! A target machine: optimizes modules for a target and generates code.
//!
//! Holds: a machine has one user at a time.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;

use llvm_sys::target::{LLVMCopyStringRepOfTargetData, LLVMDisposeTargetData};
use llvm_sys::target_machine::{
    LLVMCodeGenFileType, LLVMCodeGenOptLevel, LLVMCodeModel, LLVMCreateTargetDataLayout,
    LLVMCreateTargetMachineOptions, LLVMCreateTargetMachineWithOptions, LLVMDisposeTargetMachine,
    LLVMDisposeTargetMachineOptions, LLVMGetTargetFromTriple, LLVMRelocMode, LLVMTargetMachineOptionsSetCPU,
    LLVMTargetMachineOptionsSetCodeGenOptLevel, LLVMTargetMachineOptionsSetCodeModel,
    LLVMTargetMachineOptionsSetFeatures, LLVMTargetMachineOptionsSetRelocMode, LLVMTargetMachineRef,
};

use super::emitter::Emitter;
use super::error::CompileError;
use super::ffi::{self, MemoryBuffer, c_string, take_message, uruk_llvm_configure_target_machine};
use super::hooks::{self, HostRun, PassTimes};
use super::module::LockedModule;
use super::optimize::{OptimizationLevel, Passes};
use super::progress;
use super::target::{CodeModel, CodegenLevel, TargetOptions};
use crate::object::ObjectBuffer;

/// A target machine of this thread's.
pub(super) struct TargetMachine {
    raw: LLVMTargetMachineRef,
    /// The generator of the last module's code, for the next module.
    emitter: Cell<Option<Emitter>>,
    /// Whether it remembers variables of a module that would show in others.
    is_used_up: Cell<bool>,
}

/// The inliner's threshold as LLVM has it for each level.
const LLVMS_OWN: i32 = -1;

impl TargetMachine {
    /// Runs `passes` over `module`. With `measured`, answers how long each pass took.
    pub(super) fn run_passes(
        &self,
        module: &LockedModule<'_>,
        passes: &Passes,
        measured: bool,
    ) -> Result<PassTimes, CompileError> {
        let mut host = HostRun::new(module, &passes.hooks);
        let text = &*passes.text;
        let hear = measured.then_some(hooks::hear as _);
        let run = || {
            // SAFETY: module and machine are alive and ours; both functions take `host`, which has no other user during the call. The
            // message is taken over at once.
            let message = unsafe {
                let data = (&raw mut host).cast();
                let (start, size) = (text.as_ptr().cast(), text.len());
                take_message(ffi::uruk_llvm_run_pipeline(
                    module.raw(),
                    self.raw,
                    start,
                    size,
                    passes.inliner_threshold.unwrap_or(LLVMS_OWN),
                    hooks::host,
                    data,
                    hear,
                    progress::is_watched().then_some(hooks::count as _),
                ))
            };
            if message.is_empty() { Ok(()) } else { Err(message) }
        };
        module.enter("optimization", run, |message| CompileError::Optimize {
            module: module.name().clone(),
            passes: text.to_owned(),
            message,
        })?;
        host.into_times()
    }

    /// LLVM's error for a list of passes that it cannot read.
    pub(super) fn check_passes(&self, text: &str) -> Option<String> {
        let (start, size) = (text.as_ptr().cast(), text.len());
        // SAFETY: the machine is alive and ours. Without a module nothing runs, so that `host` is not called.
        let message = unsafe {
            let (module, data) = (ptr::null_mut(), ptr::null_mut());
            take_message(ffi::uruk_llvm_run_pipeline(
                module,
                self.raw,
                start,
                size,
                LLVMS_OWN,
                hooks::host,
                data,
                None,
                None,
            ))
        };
        (!message.is_empty()).then_some(message)
    }

    /// LLVM's own pipeline for a level, and where its second half begins; see `pipeline.cpp`.
    pub(super) fn pipeline_text(&self, level: OptimizationLevel, points: u32) -> (String, usize) {
        let mut cut = 0;
        // SAFETY: the machine is alive and ours; the text is taken over at once.
        let text = unsafe {
            take_message(ffi::uruk_llvm_pipeline_text(self.raw, level as u32, points, &raw mut cut))
        };
        (text, cut)
    }

    /// Generates an object from `module`.
    pub(super) fn emit_object(&self, module: &LockedModule<'_>) -> Result<ObjectBuffer, CompileError> {
        let has_retained = module.has_retained();
        // SAFETY: the machine is alive and ours; its emitter is dropped before it, or is leaked with it.
        let emit = || unsafe { Emitter::emit(&self.emitter, self.raw, module) };
        let result = module.enter("code generation", emit, |message| CompileError::Codegen {
            module: module.name().clone(),
            message,
        });
        // LLVM notes the addresses of values that must stay (`TargetLoweringObjectFileELF::getModuleMetadata`) and never forgets them. A
        // later value at such an address would get a section of its own. A machine that LLVM gave up on is not dropped but leaked.
        if has_retained && !matches!(result, Err(CompileError::Fatal { .. })) {
            self.is_used_up.set(true);
        }
        let (emitter, buffer) = result?;
        if emitter.may_be_kept() {
            self.emitter.set(Some(emitter));
        }
        Ok(ObjectBuffer::new(module.name().clone(), buffer))
    }

    /// Generates assembly from `module`, which is used up.
    pub(super) fn emit_assembly(self, module: &LockedModule<'_>) -> Result<ObjectBuffer, CompileError> {
        let machine = ManuallyDrop::new(self);
        let emit = || {
            let (mut message, mut buffer) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: module and machine are alive and ours; message and buffer are taken over at once.
            unsafe {
                let kind = LLVMCodeGenFileType::LLVMAssemblyFile;
                let failed = ffi::LLVMTargetMachineEmitToMemoryBuffer(
                    machine.raw,
                    module.raw(),
                    kind,
                    &raw mut message,
                    &raw mut buffer,
                );
                let message = take_message(message);
                if failed != 0 { Err(message) } else { Ok(MemoryBuffer::from_raw(buffer)) }
            }
        };
        let result = module.enter("printing assembly", emit, |message| CompileError::Codegen {
            module: module.name().clone(),
            message,
        });
        if !matches!(result, Err(CompileError::Fatal { .. })) {
            drop(ManuallyDrop::into_inner(machine)); // LLVM has not given up on it.
        }
        Ok(ObjectBuffer::new(module.name().clone(), result?))
    }

    /// Whether it may compile other modules.
    pub(super) fn may_be_kept(&self) -> bool {
        !self.is_used_up.get()
    }

    /// Tells machines apart.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.raw as usize
    }

    /// Tells its pipelines apart.
    #[cfg(test)]
    pub(super) fn emitter_address(&self) -> Option<usize> {
        let emitter = self.emitter.take();
        let address = emitter.as_ref().map(Emitter::address);
        self.emitter.set(emitter);
        address
    }

    pub(super) fn create(options: &TargetOptions) -> Result<Self, CompileError> {
        let refused =
            |message: String| CompileError::Target { subject: options.triple.as_str().into(), message };
        let triple = c_string(&options.triple);
        let (mut target, mut message) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the strings live for their calls, and LLVM copies what it keeps; the message is taken
        // over at once; the options are disposed of after their one use; the machine is owned from here on.
        unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &raw mut target, &raw mut message) != 0 {
                return Err(refused(take_message(message)));
            }
            let raw_options = LLVMCreateTargetMachineOptions();
            LLVMTargetMachineOptionsSetCPU(raw_options, c_string(&options.cpu).as_ptr());
            LLVMTargetMachineOptionsSetFeatures(raw_options, c_string(&options.features).as_ptr());
            LLVMTargetMachineOptionsSetCodeGenOptLevel(raw_options, raw_level(options.codegen_level));
            LLVMTargetMachineOptionsSetRelocMode(raw_options, LLVMRelocMode::LLVMRelocPIC);
            LLVMTargetMachineOptionsSetCodeModel(raw_options, raw_model(options.code_model));
            let machine = LLVMCreateTargetMachineWithOptions(target, triple.as_ptr(), raw_options);
            LLVMDisposeTargetMachineOptions(raw_options);
            if machine.is_null() {
                return Err(refused("LLVM was built without code generation for it".to_owned()));
            }
            let (functions, data) = (options.function_sections, options.data_sections);
            let large = options.large_data_threshold_bytes;
            uruk_llvm_configure_target_machine(machine, functions, data, large);
            Ok(Self { raw: machine, emitter: Cell::default(), is_used_up: Cell::default() })
        }
    }

    pub(super) fn data_layout(&self) -> String {
        // SAFETY: the machine is alive; layout and string are ours and disposed of here.
        unsafe {
            let layout = LLVMCreateTargetDataLayout(self.raw);
            let text = take_message(LLVMCopyStringRepOfTargetData(layout));
            LLVMDisposeTargetData(layout);
            text
        }
    }
}

impl Drop for TargetMachine {
    fn drop(&mut self) {
        drop(self.emitter.take());
        // SAFETY: `create` took the ownership, and nothing refers to the machine any more.
        unsafe { LLVMDisposeTargetMachine(self.raw) }
    }
}

// SAFETY: a machine has no ties to the thread that made it; a thread that has it uses it alone.
unsafe impl Send for TargetMachine {}

impl fmt::Debug for TargetMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TargetMachine").field(&self.raw).finish()
    }
}

fn raw_level(level: CodegenLevel) -> LLVMCodeGenOptLevel {
    match level {
        CodegenLevel::None => LLVMCodeGenOptLevel::LLVMCodeGenLevelNone,
        CodegenLevel::Less => LLVMCodeGenOptLevel::LLVMCodeGenLevelLess,
        CodegenLevel::Default => LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
        CodegenLevel::Aggressive => LLVMCodeGenOptLevel::LLVMCodeGenLevelAggressive,
    }
}

fn raw_model(model: CodeModel) -> LLVMCodeModel {
    match model {
        CodeModel::Small => LLVMCodeModel::LLVMCodeModelSmall,
        CodeModel::Medium => LLVMCodeModel::LLVMCodeModelMedium,
        CodeModel::Large => LLVMCodeModel::LLVMCodeModelLarge,
    }
}
