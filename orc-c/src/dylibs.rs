//! Dylibs and trackers.

use llvm_sys::error::LLVMErrorRef;
use uruk::core::ResourceTracker;
use uruk::core::sync::Arc;

use crate::boundary::{Out, Text};
use crate::dylib::{Dylib, handle};
use crate::engine::{self, Engine, Session};
use crate::errors::Problem;
use crate::generators::Generator;
use crate::handles::{self, Handle, Handled};
use crate::units::Unit;

/// An `LLVMOrcResourceTrackerRef`. The client releases each.
pub(crate) struct Tracker(pub(crate) ResourceTracker);

impl Handled for Tracker {
    const KIND: &'static str = "LLVMOrcResourceTrackerRef";
}

/// The dylib of a handle, with the engine that it is in.
pub(crate) fn get(handle: Handle) -> Result<(Arc<Engine>, Arc<Dylib>), Problem> {
    let dylib = handles::get::<Dylib>(handle)?;
    Ok((engine::of_session(dylib.0.session())?, dylib))
}

interface! {
    fn LLVMOrcExecutionSessionCreateBareJITDylib(session: Handle, name: Text) -> Handle {
        let dylib = handles::get::<Session>(session)?.0.session().create_bare_jit_dylib(name.get()?)?;
        Ok(handle(&dylib))
    }

    /// The dylib finds the process's symbols, as LLJIT's own do.
    fn LLVMOrcExecutionSessionCreateJITDylib(session: Handle, result: Out<Handle>, name: Text) -> LLVMErrorRef {
        result.set(Handle::NULL);
        let dylib = handles::get::<Session>(session)?.0.jit()?.create_dylib(name.get()?)?;
        result.set(handle(dylib.dylib()));
        Ok(())
    }

    fn LLVMOrcExecutionSessionGetJITDylibByName(session: Handle, name: Text) -> Handle {
        let found = handles::get::<Session>(session)?.0.session().jit_dylib(name.get()?);
        Ok(found.map_or(Handle::NULL, |dylib| handle(&dylib)))
    }

    fn LLVMOrcJITDylibDefine(dylib: Handle, unit: Handle) -> LLVMErrorRef {
        let (_, dylib) = get(dylib)?;
        Unit::define(unit, |unit| dylib.0.define(unit))
    }

    fn LLVMOrcJITDylibClear(dylib: Handle) -> LLVMErrorRef {
        Ok(get(dylib)?.1.0.clear()?)
    }

    fn LLVMOrcJITDylibAddGenerator(dylib: Handle, generator: Handle) {
        let (_, dylib) = get(dylib)?;
        let Generator(generator) = handles::take_whole(generator)?;
        let added = dylib.0.add_generator(generator);
        added.map(|_| ()).ok_or_else(|| Problem::new("the dylib was removed, or its session closed"))
    }

    fn LLVMOrcJITDylibCreateResourceTracker(dylib: Handle) -> Handle {
        Ok(handles::give(Tracker(get(dylib)?.1.0.create_tracker())))
    }

    fn LLVMOrcJITDylibGetDefaultResourceTracker(dylib: Handle) -> Handle {
        Ok(handles::give(Tracker(get(dylib)?.1.0.default_tracker())))
    }

    fn LLVMOrcReleaseResourceTracker(tracker: Handle) {
        handles::take::<Tracker>(tracker).map(drop)
    }

    fn LLVMOrcResourceTrackerTransferTo(from: Handle, to: Handle) {
        let (from, to) = (handles::get::<Tracker>(from)?, handles::get::<Tracker>(to)?);
        Ok(from.0.transfer_to(&to.0)?)
    }

    /// The client answers for it that nothing of the tracker's code runs.
    fn LLVMOrcResourceTrackerRemove(tracker: Handle) -> LLVMErrorRef {
        Ok(handles::get::<Tracker>(tracker)?.0.remove()?)
    }
}
