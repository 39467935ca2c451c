//! Definition generators: of the client, of a process or a library, of a static archive.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use llvm_sys::error::LLVMErrorRef;
use uruk::core::sync::Arc;
use uruk::core::{
    DefinitionGenerator, GenerateRequest, SymbolMap, SymbolName, absolute_symbols, shared_error,
};
use uruk::pipeline::object::{
    ArchiveIndex, ObjectBuffer, ObjectLayer, StaticArchiveGenerator, define_object,
};
use uruk::pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};

use crate::boundary::{Out, Text, is_true};
use crate::callbacks::{self, Call, Data, Generate, TryToGenerate};
use crate::dylib;
use crate::engine::Linking;
use crate::errors::ClientError;
use crate::handles::{self, Handle, Handled};
use crate::names::Lent;
use crate::suspended::LookupState;
use crate::symbols::{LookupSetElement, dylib_flags_for_c, kind_for_c};
use crate::units::Destroy;

/// An `LLVMOrcDefinitionGeneratorRef` that no dylib has yet.
pub(crate) struct Generator(pub(crate) Arc<dyn DefinitionGenerator>);

impl Handled for Generator {
    const KIND: &'static str = "LLVMOrcDefinitionGeneratorRef";
}

fn give(generator: impl DefinitionGenerator + 'static) -> Handle {
    handles::give(Generator(Arc::new(generator)))
}

/// A generator of the client's functions.
struct ClientGenerator {
    function: TryToGenerate,
    data: Data,
    dispose: Option<Destroy>,
}

impl DefinitionGenerator for ClientGenerator {
    fn name(&self) -> &str {
        "the client's generator"
    }

    fn generate(&self, request: GenerateRequest) {
        let mut names = Lent::default();
        let element = |(name, flags): (&SymbolName, _)| LookupSetElement::lend(name, flags, &mut names);
        let symbols = request.symbols().iter().map(element).collect();
        let (kind, flags) = (kind_for_c(request.kind()), dylib_flags_for_c(request.lookup_flags()));
        let dylib = dylib::handle(request.dylib());
        let state = LookupState::give(request.detach());
        let (function, data) = (self.function, self.data);
        callbacks::post(Call::Generate(Box::new(Generate {
            function,
            data,
            // The client may only ask for it what it asks for a generator of its own: nothing.
            generator: Handle::NULL,
            state,
            kept: state,
            kind,
            dylib,
            flags,
            symbols,
            _names: names,
        })));
    }
}

impl Drop for ClientGenerator {
    fn drop(&mut self) {
        if let Some(dispose) = self.dispose {
            // SAFETY: the client has given the function for that, with its data, which nothing else has any more.
            unsafe { dispose(self.data.0) };
        }
    }
}

/// `LLVMOrcSymbolPredicate`.
type Predicate = unsafe extern "C" fn(*mut c_void, Handle) -> c_int;

/// Those symbols of a process or library that the client wants.
struct Filtered {
    symbols: ProcessSymbols,
    filter: Predicate,
    data: Data,
}

impl Filtered {
    fn wants(&self, name: &SymbolName) -> bool {
        let mut names = Lent::default();
        // SAFETY: the client has given the function for that, with its data; the entry lives for the call.
        is_true(unsafe { (self.filter)(self.data.0, names.lend(name)) })
    }
}

impl DefinitionGenerator for Filtered {
    fn name(&self) -> &str {
        "symbols that the client's filter lets through"
    }

    fn generate(&self, request: GenerateRequest) {
        let mut found = SymbolMap::default();
        for (name, _) in request.symbols().iter().filter(|(name, _)| self.wants(name)) {
            if let Some(definition) = self.symbols.lookup(name.as_str()) {
                found.insert(name.clone(), definition);
            }
        }
        let defined = if found.is_empty() { Ok(()) } else { request.dylib().define(absolute_symbols(found)) };
        request.finish(defined.map_err(shared_error));
    }
}

fn process(symbols: ProcessSymbols, filter: Option<Predicate>, data: Data) -> Handle {
    match filter {
        Some(filter) => give(Filtered { symbols, filter, data }),
        None => give(ProcessSymbolsGenerator::new(Arc::new(symbols))),
    }
}

interface! {
    fn LLVMOrcDisposeDefinitionGenerator(generator: Handle) {
        handles::take::<Generator>(generator).map(drop)
    }

    fn LLVMOrcCreateCustomCAPIDefinitionGenerator(
        function: TryToGenerate,
        data: *mut c_void,
        dispose: Option<Destroy>,
    ) -> Handle {
        Ok(give(ClientGenerator { function, data: Data(data), dispose }))
    }

    /// Takes over the state, with which a generator has suspended a lookup, and the error.
    fn LLVMOrcLookupStateContinueLookup(state: Handle, error: ClientError) {
        LookupState::finish(state, error.into_result())
    }

    fn LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
        result: Out<Handle>,
        _prefix: c_char,
        filter: Option<Predicate>,
        data: *mut c_void,
    ) -> LLVMErrorRef {
        result.set(process(ProcessSymbols::whole_process(), filter, Data(data)));
        Ok(())
    }

    fn LLVMOrcCreateDynamicLibrarySearchGeneratorForPath(
        result: Out<Handle>,
        path: Text,
        _prefix: c_char,
        filter: Option<Predicate>,
        data: *mut c_void,
    ) -> LLVMErrorRef {
        result.set(Handle::NULL);
        result.set(process(ProcessSymbols::of_library(path.get()?)?, filter, Data(data)));
        Ok(())
    }

    fn LLVMOrcCreateStaticLibrarySearchGeneratorForPath(
        result: Out<Handle>,
        layer: Handle,
        path: Text,
    ) -> LLVMErrorRef {
        result.set(Handle::NULL);
        let layer: Arc<dyn ObjectLayer> = handles::get::<Linking>(layer)?.linker()?;
        let archive = ObjectBuffer::open(Path::new(path.get()?))?;
        let define = move |dylib: &_, member| define_object(dylib, &layer, member);
        result.set(give(StaticArchiveGenerator::new(ArchiveIndex::read(&archive)?, define)));
        Ok(())
    }
}
