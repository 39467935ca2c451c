//! Transforms that the client sets, and modules that it hands to the layers itself.

use std::ffi::c_void;

use uruk::core::shared_error;

use crate::callbacks::Data;
use crate::engine::{IrTransform, ObjectTransform};
use crate::errors::Problem;
use crate::handles::{self, Handle};
use crate::module::WrappedModule;
use crate::responsibility::Responsibility;
use crate::transforms::{TransformModule, TransformObject};

interface! {
    fn LLVMOrcIRTransformLayerSetTransform(layer: Handle, function: TransformModule, data: *mut c_void) {
        handles::get::<IrTransform>(layer)?.0.transforms.set_ir(function, Data(data))
    }

    /// Takes over the responsibility and the module.
    fn LLVMOrcIRTransformLayerEmit(layer: Handle, responsibility: Handle, module: Handle) {
        let module = handles::take_whole::<WrappedModule>(module);
        let responsibility = Responsibility::take_unfinished(responsibility)?;
        let responsibility = responsibility.ok_or_else(|| Problem::new("the responsibility is over"))?;
        let layer = match handles::get::<IrTransform>(layer) {
            Ok(layer) => layer,
            Err(problem) => {
                responsibility.fail(shared_error(problem.to_string()));
                return Err(problem);
            }
        };
        match module.and_then(WrappedModule::into_own) {
            Ok(module) => layer.0.ir.emit(responsibility, module),
            Err(problem) => responsibility.fail(shared_error(problem.to_string())),
        }
        Ok(())
    }

    fn LLVMOrcObjectTransformLayerSetTransform(layer: Handle, function: TransformObject, data: *mut c_void) {
        handles::get::<ObjectTransform>(layer)?.0.transforms.set_object(function, Data(data))
    }
}
