//! Layers in front of the compiler and of the linker, in which the client may change what passes.

use std::ffi::c_void;

use llvm_sys::prelude::LLVMMemoryBufferRef;
use uruk::core::sync::{Arc, Mutex};
use uruk::core::{MaterializationResponsibility, SharedError, shared_error};
use uruk::pipeline::arch::Architecture;
use uruk::pipeline::ir::{IrCompileLayer, IrLayer, PendingModule, ThreadSafeModule};
use uruk::pipeline::linking::ObjectLinkingLayer;
use uruk::pipeline::object::{ObjectBuffer, ObjectLayer};

use crate::callbacks::Data;
use crate::errors::{ClientError, Problem};
use crate::handles::{self, Handle};
use crate::module::WrappedModule;
use crate::owned::MemoryBuffer;
use crate::responsibility::Responsibility;

pub(crate) type TransformModule = unsafe extern "C" fn(*mut c_void, *mut Handle, Handle) -> ClientError;
pub(crate) type TransformObject = unsafe extern "C" fn(*mut c_void, *mut LLVMMemoryBufferRef) -> ClientError;

/// The client's functions. They run deep inside the session, and must return.
#[derive(Default)]
pub(crate) struct Transforms {
    ir: Mutex<Option<(TransformModule, Data)>>,
    object: Mutex<Option<(TransformObject, Data)>>,
    /// Whether a module was added by its shape: it goes past these functions.
    are_passed_by: Mutex<bool>,
}

impl Transforms {
    /// Whether a module may go past the client's functions. Remembers that one does.
    pub(crate) fn let_pass(&self) -> bool {
        let are_unset = self.ir.lock().is_none() && self.object.lock().is_none();
        if are_unset {
            *self.are_passed_by.lock() = true;
        }
        are_unset
    }

    pub(crate) fn set_ir(&self, function: TransformModule, data: Data) -> Result<(), Problem> {
        *self.ir.lock() = Some((function, data));
        self.is_for_all()
    }

    pub(crate) fn set_object(&self, function: TransformObject, data: Data) -> Result<(), Problem> {
        *self.object.lock() = Some((function, data));
        self.is_for_all()
    }

    fn is_for_all(&self) -> Result<(), Problem> {
        if *self.are_passed_by.lock() {
            return Err(Problem::new(
                "the modules that were added before go to the cache, without the transform",
            ));
        }
        Ok(())
    }
}

/// Lets the client change modules before they are compiled.
pub(crate) struct ClientIrLayer {
    pub(crate) transforms: Arc<Transforms>,
    pub(crate) below: Arc<IrCompileLayer>,
}

impl IrLayer for ClientIrLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, module: ThreadSafeModule) {
        let transform = *self.transforms.ir.lock();
        let Some((function, data)) = transform else { return self.below.emit(responsibility, module) };
        let duty = Responsibility::give(responsibility);
        let changed = change_module(function, data, module, duty);
        // The client has had the duty for the call alone, and may have finished it.
        let Ok(Some(responsibility)) = Responsibility::take_unfinished(duty) else { return };
        match changed {
            Ok(module) => self.below.emit(responsibility, module),
            Err(error) => responsibility.fail(error),
        }
    }

    fn emit_pending(&self, responsibility: MaterializationResponsibility, pending: PendingModule) {
        if self.transforms.ir.lock().is_none() {
            return self.below.emit_pending(responsibility, pending);
        }
        match pending.prepare() {
            Ok(module) => self.emit(responsibility, module),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }
}

fn change_module(
    function: TransformModule,
    data: Data,
    module: ThreadSafeModule,
    duty: Handle,
) -> Result<ThreadSafeModule, SharedError> {
    let mut module = handles::give(WrappedModule::Own(module));
    // SAFETY: the client has given the function for that, with its data. It may put another module in the place of this one.
    let done = unsafe { function(data.0, &raw mut module, duty) }.into_result();
    // The module that it leaves there is ours, also if it has failed.
    let changed = handles::take_whole::<WrappedModule>(module).and_then(WrappedModule::into_own);
    done?;
    changed.map_err(|problem| shared_error(problem.to_string()))
}

/// Lets the client change objects before they are linked.
pub(crate) struct ClientObjectLayer {
    pub(crate) transforms: Arc<Transforms>,
    pub(crate) below: Arc<ObjectLinkingLayer>,
}

impl ObjectLayer for ClientObjectLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let transform = *self.transforms.object.lock();
        let object = match transform {
            None => object,
            Some((function, data)) => match change_object(function, data, &object) {
                Ok(changed) => changed.renamed(object.name().clone()),
                Err(error) => return responsibility.fail(error),
            },
        };
        self.below.emit(responsibility, object);
    }

    fn architecture(&self) -> Architecture {
        self.below.architecture()
    }

    fn announce(&self, object: &ObjectBuffer) {
        self.below.announce(object);
    }
}

fn change_object(
    function: TransformObject,
    data: Data,
    object: &ObjectBuffer,
) -> Result<ObjectBuffer, SharedError> {
    let mut buffer = MemoryBuffer::copy_of(object.bytes());
    // SAFETY: the client has given the function for that, with its data. It owns the buffer, and leaves another or null in its place.
    buffer.lend(|buffer| unsafe { function(data.0, buffer) }).into_result()?;
    buffer.into_object().map_err(|problem| shared_error(problem.to_string()))
}
