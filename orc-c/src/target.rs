//! Target machine builders.

use std::ffi::c_char;

use llvm_sys::core::LLVMCreateMessage;
use llvm_sys::error::LLVMErrorRef;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use uruk::core::sync::Mutex;
use uruk::inkwell::targets::TargetMachine;
use uruk::pipeline::ir::{JitTargetMachineBuilder, TargetOptions};

use crate::boundary::{Out, Text};
use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};

/// An `LLVMOrcJITTargetMachineBuilderRef`.
pub(crate) struct MachineBuilder(Mutex<TargetOptions>);

impl Handled for MachineBuilder {
    const KIND: &'static str = "LLVMOrcJITTargetMachineBuilderRef";
}

impl MachineBuilder {
    fn of(target: &JitTargetMachineBuilder) -> Handle {
        handles::give(Self(Mutex::new(target.options().clone())))
    }

    pub(crate) fn target(&self) -> Result<JitTargetMachineBuilder, Problem> {
        let options = self.0.lock().clone();
        Ok(JitTargetMachineBuilder::new(options)?)
    }
}

interface! {
    fn LLVMOrcJITTargetMachineBuilderDetectHost(result: Out<Handle>) -> LLVMErrorRef {
        result.set(Handle::NULL);
        result.set(MachineBuilder::of(&JitTargetMachineBuilder::host()?));
        Ok(())
    }

    /// Takes the machine over. Code stays position independent and in the small model.
    fn LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine: LLVMTargetMachineRef) -> Handle {
        if machine.is_null() {
            return Err(Problem::new("LLVMTargetMachineRef is null"));
        }
        // SAFETY: the client's machine is alive and handed over: it is disposed of here.
        let machine = unsafe { TargetMachine::new(machine) };
        Ok(MachineBuilder::of(&JitTargetMachineBuilder::of_machine(&machine)?))
    }

    fn LLVMOrcDisposeJITTargetMachineBuilder(builder: Handle) {
        handles::take::<MachineBuilder>(builder).map(drop)
    }

    /// The client disposes of the string as of LLVM's messages.
    fn LLVMOrcJITTargetMachineBuilderGetTargetTriple(builder: Handle) -> *mut c_char {
        let builder = handles::get::<MachineBuilder>(builder)?;
        let triple = std::ffi::CString::new(&*builder.0.lock().triple)?;
        // SAFETY: LLVM copies the string.
        Ok(unsafe { LLVMCreateMessage(triple.as_ptr()) })
    }

    fn LLVMOrcJITTargetMachineBuilderSetTargetTriple(builder: Handle, triple: Text) {
        handles::get::<MachineBuilder>(builder)?.0.lock().triple = triple.get()?.to_owned();
        Ok(())
    }
}
