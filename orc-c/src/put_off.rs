//! Passes that are put off: a note in the module says which. It goes with the module into copies, bitcode, and modules that it is linked into,
//! and ends with it.

use std::mem::ManuallyDrop;

use llvm_sys::prelude::LLVMModuleRef;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use uruk::inkwell::OptimizationLevel;
use uruk::inkwell::targets::{CodeModel, RelocMode, Target, TargetMachine, TargetTriple};
use uruk::pipeline::ir::{OptimizationPipeline, attach_texts, take_attached};

use crate::errors::Problem;
use crate::owned;

/// The name of the metadata.
const NOTE: &str = "uruk.passes";

/// Passes as a client has asked for them.
pub(crate) struct PutOff {
    pub(crate) text: String,
    pub(crate) inliner_threshold: Option<i32>,
    /// The client's machine, if it has given one: triple, processor, features.
    machine: Option<[String; 3]>,
}

impl PutOff {
    /// `machine` is the client's, or null.
    pub(crate) fn new(text: &str, inliner_threshold: Option<i32>, machine: LLVMTargetMachineRef) -> Self {
        let machine = (!machine.is_null()).then(|| {
            // SAFETY: the client's machine lives for the call, and stays the client's: `ManuallyDrop` leaves it.
            let machine = ManuallyDrop::new(unsafe { TargetMachine::new(machine) });
            let (cpu, features) = (machine.get_cpu(), machine.get_feature_string());
            let triple = machine.get_triple().as_str().to_string_lossy().into_owned();
            [triple, cpu.to_string_lossy().into_owned(), features.to_string_lossy().into_owned()]
        });
        Self { text: text.to_owned(), inliner_threshold, machine }
    }

    /// Notes in a module that they are to run.
    pub(crate) fn note(&self, module: LLVMModuleRef) {
        let threshold = self.inliner_threshold.map_or_else(String::new, |threshold| threshold.to_string());
        let mut texts = vec![&*self.text, &*threshold];
        texts.extend(self.machine.iter().flatten().map(String::as_str));
        owned::lend(module, |module| attach_texts(module, NOTE, &texts));
    }

    fn of_note(texts: Vec<String>) -> Option<Self> {
        let mut texts = texts.into_iter();
        let (text, threshold) = (texts.next()?, texts.next()?);
        let machine = <[String; 3]>::try_from(texts.collect::<Vec<_>>()).ok();
        Some(Self { text, inliner_threshold: threshold.parse().ok(), machine })
    }

    /// The same for our compiler, which has a machine of its own.
    pub(crate) fn pipeline(&self) -> OptimizationPipeline {
        let pipeline = OptimizationPipeline::passes(&*self.text);
        match self.inliner_threshold {
            Some(threshold) => pipeline.inliner_threshold(threshold),
            None => pipeline,
        }
    }

    /// The triple of the client's machine.
    pub(crate) fn triple(&self) -> Option<&str> {
        self.machine.as_ref().map(|[triple, ..]| &**triple)
    }

    /// A machine like the client's, if it has given one.
    pub(crate) fn machine(&self) -> Result<Option<TargetMachine>, Problem> {
        let Some([triple, cpu, features]) = &self.machine else { return Ok(None) };
        let triple = TargetTriple::create(triple);
        let (reloc, model) = (RelocMode::Default, CodeModel::Default);
        Target::from_triple(&triple)
            .map_err(|message| Problem::new(message.to_string_lossy()))?
            .create_target_machine(&triple, cpu, features, OptimizationLevel::Default, reloc, model)
            .map(Some)
            .ok_or_else(|| Problem::new(format_args!("there is no target machine for {cpu} any more")))
    }
}

/// Takes the passes that are to run over a module, in their order. From here on the caller answers for them.
pub(crate) fn take(module: LLVMModuleRef) -> Vec<PutOff> {
    let notes = owned::lend(module, |module| take_attached(module, NOTE));
    notes.into_iter().filter_map(PutOff::of_note).collect()
}
