//! Contexts and modules.
//!
//! A module is written as bitcode as soon as it is added, on the client's thread, and disposed of. The client goes on using its context
//! without a lock: the module need not even live in the context that it was wrapped with. Once it is bitcode, nothing of ours touches that
//! context.

use std::ffi::c_void;

use llvm_sys::error::LLVMErrorRef;
use llvm_sys::prelude::LLVMModuleRef;
use uruk::core::ResourceTracker;
use uruk::core::sync::Arc;
use uruk::pipeline::ir::IrMaterializationUnit;

use crate::dylibs::{self, Tracker};
use crate::engine::{self, Engine, Lljit};
use crate::errors::{ClientError, Problem};
use crate::handles::{self, Handle, Handled};
use crate::module::WrappedModule;
use crate::owned::{Context, Module};
use crate::passes;
use crate::put_off;

/// An `LLVMOrcThreadSafeContextRef`.
struct SharedContext(Arc<Context>);

impl Handled for SharedContext {
    const KIND: &'static str = "LLVMOrcThreadSafeContextRef";
}

/// Adds a module to a tracker of the engine.
fn add(module: WrappedModule, engine: &Engine, tracker: &ResourceTracker) -> Result<(), Problem> {
    let (session, layer) = (engine.session(), engine.ir.clone());
    if tracker.dylib().session() != session {
        return Err(Problem::new("the module goes to a dylib of another LLJIT"));
    }
    let (layout, ours) = (module.data_layout()?, engine.target.data_layout()?);
    if !layout.is_empty() && layout != ours {
        return Err(Problem::new(format_args!(
            "the module lays out data as `{layout}`, and the LLJIT as `{ours}`"
        )));
    }
    if let WrappedModule::Client { module, .. } = &module
        && let Some(cache) = engine.cache()
        && engine.transforms.let_pass()
    {
        add_shaped(module, engine, tracker)?;
        cache.tell_of_failure();
        return Ok(());
    }
    module.look(|_| ())?;
    let unit = match module {
        WrappedModule::Own(module) => {
            IrMaterializationUnit::from_module(session, layer, &engine.target, module)?
        }
        WrappedModule::Client { module, context } => {
            let bitcode = module.to_bitcode();
            drop(module);
            drop(context);
            let mut unit = IrMaterializationUnit::from_source(session, layer, &engine.target, bitcode)?;
            unit.skip_verifier();
            unit
        }
    };
    Ok(tracker.dylib().define_with_tracker(Box::new(unit), tracker)?)
}

/// Adds a module that the cache knows by its shape. A hit reads it where it is, and copies nothing.
fn add_shaped(module: &Module, engine: &Engine, tracker: &ResourceTracker) -> Result<(), Problem> {
    let scope = engine.jit()?.in_tracker(tracker);
    let all = put_off::take(module.raw());
    let pipeline = match &*all {
        [one] => Some(one.pipeline()),
        // A module that others were linked into has theirs too.
        _ => passes::run_all(module.raw(), all).map(|()| None)?,
    };
    module
        .lend(|name, module| scope.add_shaped(name, module, pipeline.as_ref()).map(drop))
        .map_err(Problem::from)
}

/// `LLVMOrcGenericIRModuleOperationFunction`.
type Operation = unsafe extern "C" fn(*mut c_void, LLVMModuleRef) -> ClientError;

interface! {
    fn LLVMOrcCreateNewThreadSafeContext() -> Handle {
        Ok(handles::give(SharedContext(Arc::new(Context::new()))))
    }

    fn LLVMOrcCreateNewThreadSafeContextFromLLVMContext(context: Context) -> Handle {
        if context.is_null() {
            return Err(Problem::new("LLVMContextRef is null"));
        }
        Ok(handles::give(SharedContext(Arc::new(context))))
    }

    fn LLVMOrcDisposeThreadSafeContext(context: Handle) {
        handles::take::<SharedContext>(context).map(drop)
    }

    fn LLVMOrcCreateNewThreadSafeModule(module: Module, context: Handle) -> Handle {
        if module.is_null() {
            return Err(Problem::new("LLVMModuleRef is null"));
        }
        let context = handles::get::<SharedContext>(context)?.0.clone();
        Ok(handles::give(WrappedModule::Client { module, context }))
    }

    fn LLVMOrcDisposeThreadSafeModule(module: Handle) {
        handles::take::<WrappedModule>(module).map(drop)
    }

    /// The context is locked if it is ours, and left to the client if it is the client's.
    fn LLVMOrcThreadSafeModuleWithModuleDo(module: Handle, operation: Operation, data: *mut c_void) -> LLVMErrorRef {
        let module = handles::get::<WrappedModule>(module)?;
        // SAFETY: the client has given the function for that, with its data; the module is alive during the call.
        let call = |module| unsafe { operation(data, module) };
        module.look(call)?.into_result().map_err(Problem::new)
    }

    fn LLVMOrcLLJITAddLLVMIRModule(jit: Handle, dylib: Handle, module: Handle) -> LLVMErrorRef {
        let module = handles::take_whole::<WrappedModule>(module)?;
        let (jit, (_, dylib)) = (handles::get::<Lljit>(jit)?, dylibs::get(dylib)?);
        add(module, &jit.0, &dylib.0.default_tracker())
    }

    fn LLVMOrcLLJITAddLLVMIRModuleWithRT(jit: Handle, tracker: Handle, module: Handle) -> LLVMErrorRef {
        let module = handles::take_whole::<WrappedModule>(module)?;
        let (jit, tracker) = (handles::get::<Lljit>(jit)?, handles::get::<Tracker>(tracker)?);
        engine::of_session(tracker.0.dylib().session())?;
        add(module, &jit.0, &tracker.0)
    }
}
