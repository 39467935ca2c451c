//! Object layers, and files of objects.
//!
//! ORC has two linkers with several ways to get memory; here is one. A layer that a client creates is that linker, whichever it asks for; its memory may be the
//! [client's](crate::memory).

use std::ffi::{c_int, c_void};
use std::fs;

use llvm_sys::error::LLVMErrorRef;
use llvm_sys::execution_engine::{LLVMCreateGDBRegistrationListener, LLVMCreatePerfJITEventListener};
use llvm_sys::prelude::{LLVMJITEventListenerRef, LLVMMemoryBufferRef};
use uruk::core::ResourceTracker;
use uruk::core::sync::{Arc, Mutex};
use uruk::pipeline::debug::{self, PerfFormat};
use uruk::pipeline::object::{ObjectBuffer, ObjectLayer, ObjectMaterializationUnit};

use crate::boundary::{Out, Text};
use crate::callbacks::Data;
use crate::dylibs::{self, Tracker};
use crate::engine::{Engine, Linking, Lljit};
use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};
use crate::memory::{
    AllocateCode, AllocateData, ClientMemory, CreateContext, DestroyContext, FinalizeMemory,
    NotifyTerminating,
};
use crate::owned::MemoryBuffer;
use crate::responsibility::Responsibility;

fn add(
    engine: &Engine,
    layer: Arc<dyn ObjectLayer>,
    tracker: &ResourceTracker,
    object: ObjectBuffer,
) -> Result<(), Problem> {
    if tracker.dylib().session() != engine.session() {
        return Err(Problem::new("the object goes to a dylib of another LLJIT"));
    }
    let unit = ObjectMaterializationUnit::new(engine.session(), layer, object)?;
    Ok(tracker.dylib().define_with_tracker(Box::new(unit), tracker)?)
}

/// An `LLVMOrcDumpObjectsRef`.
struct DumpObjects {
    directory: String,
    name: String,
    count: Mutex<usize>,
}

impl Handled for DumpObjects {
    const KIND: &'static str = "LLVMOrcDumpObjectsRef";
}

impl DumpObjects {
    /// `NAME.o`, then `NAME.2.o` and so on.
    fn write(&self, object: &[u8]) -> Result<(), Problem> {
        let count = {
            let mut count = self.count.lock();
            *count += 1;
            *count
        };
        let stem = if self.name.is_empty() { "object" } else { &*self.name };
        let file = if count == 1 { format!("{stem}.o") } else { format!("{stem}.{count}.o") };
        let directory = if self.directory.is_empty() { "." } else { &*self.directory };
        Ok(fs::write(format!("{directory}/{file}"), object)?)
    }
}

interface! {
    fn LLVMOrcLLJITAddObjectFile(jit: Handle, dylib: Handle, object: MemoryBuffer) -> LLVMErrorRef {
        let (jit, (_, dylib)) = (handles::get::<Lljit>(jit)?, dylibs::get(dylib)?);
        add(&jit.0, jit.0.objects.clone(), &dylib.0.default_tracker(), object.into_object()?)
    }

    fn LLVMOrcLLJITAddObjectFileWithRT(jit: Handle, tracker: Handle, object: MemoryBuffer) -> LLVMErrorRef {
        let (jit, tracker) = (handles::get::<Lljit>(jit)?, handles::get::<Tracker>(tracker)?);
        add(&jit.0, jit.0.objects.clone(), &tracker.0, object.into_object()?)
    }

    fn LLVMOrcObjectLayerAddObjectFile(layer: Handle, dylib: Handle, object: MemoryBuffer) -> LLVMErrorRef {
        let (layer, (_, dylib)) = (handles::get::<Linking>(layer)?, dylibs::get(dylib)?);
        add(&layer.engine, layer.linker()?, &dylib.0.default_tracker(), object.into_object()?)
    }

    fn LLVMOrcObjectLayerAddObjectFileWithRT(layer: Handle, tracker: Handle, object: MemoryBuffer) -> LLVMErrorRef {
        let (layer, tracker) = (handles::get::<Linking>(layer)?, handles::get::<Tracker>(tracker)?);
        add(&layer.engine, layer.linker()?, &tracker.0, object.into_object()?)
    }

    /// Takes over the responsibility and the object.
    fn LLVMOrcObjectLayerEmit(layer: Handle, responsibility: Handle, object: MemoryBuffer) {
        let responsibility = Responsibility::take_unfinished(responsibility)?;
        let responsibility = responsibility.ok_or_else(|| Problem::new("the responsibility is over"))?;
        let linker = handles::get::<Linking>(layer).and_then(|layer| layer.linker());
        match linker.and_then(|linker| Ok((linker, object.into_object()?))) {
            Ok((linker, object)) => linker.emit(responsibility, object),
            Err(problem) => {
                responsibility.fail(uruk::core::shared_error(problem.to_string()));
                return Err(problem);
            }
        }
        Ok(())
    }

    fn LLVMOrcDisposeObjectLayer(layer: Handle) {
        if handles::get::<Linking>(layer)?.is_part {
            return Err(Problem::new("the layer is part of an LLJIT"));
        }
        handles::take::<Linking>(layer).map(drop)
    }

    fn LLVMOrcCreateObjectLinkingLayerWithInProcessMemoryManager(result: Out<Handle>, session: Handle) -> LLVMErrorRef {
        result.set(Handle::NULL);
        result.set(Linking::give(session, None)?);
        Ok(())
    }

    fn LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session: Handle) -> Handle {
        Linking::give(session, None)
    }

    /// Memory is reserved in any case.
    fn LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManagerReserveAlloc(
        session: Handle,
        _reserves: c_int,
    ) -> Handle {
        Linking::give(session, None)
    }

    /// The code of an LLJIT that is made with this layer lies in the client's memory.
    fn LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
        session: Handle,
        data: *mut c_void,
        create: Option<CreateContext>,
        end: Option<NotifyTerminating>,
        code: Option<AllocateCode>,
        variables: Option<AllocateData>,
        finalize: Option<FinalizeMemory>,
        destroy: Option<DestroyContext>,
    ) -> Handle {
        let null = || Problem::new("a function of the memory manager is null");
        let memory = ClientMemory {
            data: Data(data),
            create: create.ok_or_else(null)?,
            end: end.ok_or_else(null)?,
            code: code.ok_or_else(null)?,
            variables: variables.ok_or_else(null)?,
            finalize: finalize.ok_or_else(null)?,
            destroy: destroy.ok_or_else(null)?,
        };
        Linking::give(session, Some(memory))
    }

    /// Serves the two listeners that libLLVM has: gdb and perf know the code of the whole process then. Others are C++ objects.
    fn LLVMOrcRTDyldObjectLinkingLayerRegisterJITEventListener(layer: Handle, listener: LLVMJITEventListenerRef) {
        handles::get::<Linking>(layer)?;
        // SAFETY: they have no obligations, and give the same objects each time, or null.
        let [gdb, perf] = unsafe { [LLVMCreateGDBRegistrationListener(), LLVMCreatePerfJITEventListener()] };
        match listener {
            none if none.is_null() => Err(Problem::new("LLVMJITEventListenerRef is null")),
            listener if listener == gdb => {
                debug::set_debugger(true);
                Ok(())
            }
            listener if listener == perf => Ok(debug::set_perf(Some(PerfFormat::JitDump))?),
            _ => Err(Problem::new("only the listeners for gdb and perf are served")),
        }
    }

    fn LLVMOrcCreateDumpObjects(directory: Text, name: Text) -> Handle {
        let (directory, name) = (directory.get()?.to_owned(), name.get()?.to_owned());
        Ok(handles::give(DumpObjects { directory, name, count: Mutex::new(0) }))
    }

    fn LLVMOrcDisposeDumpObjects(dump: Handle) {
        handles::take::<DumpObjects>(dump).map(drop)
    }

    /// The buffer stays as it is.
    fn LLVMOrcDumpObjects_CallOperator(dump: Handle, object: *mut LLVMMemoryBufferRef) -> LLVMErrorRef {
        let dump = handles::get::<DumpObjects>(dump)?;
        MemoryBuffer::read(object, |object| dump.write(object))
    }
}
