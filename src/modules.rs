//! Modules of LLVM IR as units.

use std::collections::HashSet;

use uruk_core::ResourceTracker;
use uruk_core::sync::Arc;
use uruk_pipeline::ir::inkwell::module::Module;
use uruk_pipeline::ir::{
    CompileError, IrCompileLayer, IrCompiler, IrLayer, IrMaterializationUnit, JitTargetMachineBuilder,
    LazyModule, LazyUnits, LinkerInfo, ModuleInterface, OptimizationPipeline, ThreadSafeModule,
};
use uruk_pipeline::lazy::FileStubs;
use uruk_pipeline::object::{FileKind, ObjectBuffer, UnitTraits};
use uruk_pipeline::tiers::Tiers;

use crate::error::JitError;
use crate::objects::{Linking, OnCall, allocates, is_value};
use crate::units::{FileFormat, FileUnits};

/// Modules of LLVM IR, as bitcode, text, or in memory.
pub(crate) struct Modules {
    pub(crate) linking: Arc<Linking>,
    pub(crate) layer: Arc<IrCompileLayer>,
    pub(crate) target: JitTargetMachineBuilder,
    /// Whether LLVM's verifier runs over what is read.
    pub(crate) verifies_ir: bool,
    /// How functions are compiled that are called for the first time, and who decides when they are compiled better.
    pub(crate) tiers: Option<(IrCompiler, Tiers)>,
    pub(crate) on_whole: Option<Arc<OnWhole>>,
}

/// Hears which module is compiled as a whole although its functions were to be compiled on call, and why.
pub(crate) type OnWhole = dyn Fn(&str, &str) + Send + Sync;

impl FileFormat for Modules {
    fn units(&self, tracker: &ResourceTracker, source: ObjectBuffer) -> Result<FileUnits, JitError> {
        let mut takes_part = false;
        if let Some(on_call) = self.linking.on_call
            && let Some(module) = self.lazy_module(&source)?
        {
            match on_call {
                OnCall::Function => return self.lazy_functions(tracker, &module),
                OnCall::Module if !module.interface().is_passive() => (),
                OnCall::Module => match module.stubs_of_file() {
                    Some(stubs) => return self.lazy_file(tracker, source, &module, stubs),
                    // What refers to it may not be linked before the program runs.
                    None => takes_part = true,
                },
            }
        }
        let work_bytes = source.size_bytes();
        let mut unit = IrMaterializationUnit::from_source(
            tracker.dylib().session(),
            self.layer.clone(),
            &self.target,
            source,
        )?;
        if takes_part {
            unit.always_link();
        }
        self.whole(tracker, unit, work_bytes)
    }

    fn names(&self, member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        Ok(self.layer.interface_of(member)?.into_names())
    }

    fn values(&self, member: &ObjectBuffer) -> HashSet<Box<str>> {
        let module = self.layer.interface_of(member);
        module.map_or_else(|_| HashSet::new(), |module| module.names_where(is_value).collect())
    }
}

impl Modules {
    /// The unit of a module whose interface is known.
    pub(crate) fn units_of_interface(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        interface: &ModuleInterface,
    ) -> Result<FileUnits, JitError> {
        let (session, work_bytes) = (tracker.dylib().session(), source.size_bytes());
        let unit = IrMaterializationUnit::from_interface(session, self.layer.clone(), interface, source);
        self.whole(tracker, unit, work_bytes)
    }

    /// The unit of a module whose names are those that `info` gives them.
    pub(crate) fn units_of_translation(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        info: LinkerInfo,
    ) -> Result<FileUnits, JitError> {
        let (session, info) = (tracker.dylib().session(), Arc::new(info));
        let layer = Arc::new(self.layer.with_meanings(self.linking.objects(), info.clone()));
        let work_bytes = source.size_bytes();
        let unit = IrMaterializationUnit::from_source(session, layer, &self.target, source)?;
        self.whole(tracker, unit.with_meanings(session, &info), work_bytes)
    }

    /// Refuses modules that are known by their shape where helpers compile: this process would read them.
    pub(crate) fn refuse_shapes(&self) -> Result<(), CompileError> {
        match self.layer.compiler().helpers() {
            Some(_) => {
                Err(CompileError::NotContained { what: "modules that are known by their shape".to_owned() })
            }
            None => Ok(()),
        }
    }

    /// The unit of a module that the cache knows by its shape, compiled with `passes` instead of the engine's own.
    pub(crate) fn units_of_shape(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        module: &Module<'_>,
        passes: Option<&OptimizationPipeline>,
    ) -> Result<FileUnits, JitError> {
        self.refuse_shapes()?;
        let (session, objects) = (tracker.dylib().session(), self.linking.objects());
        let other = passes.map(|passes| self.layer.with_pipeline(passes.clone())).transpose()?;
        let layer = other.as_ref().unwrap_or(&self.layer);
        let unit = IrMaterializationUnit::from_shape(session, layer, objects, name, module)?;
        // The verifier has run over the copy, if there is one.
        self.defined(tracker, unit, UnitTraits::default().work_bytes)
    }

    /// The units of a module in memory. Functions that are compiled when they are called are cut out of bitcode.
    pub(crate) fn units_of_module(
        &self,
        tracker: &ResourceTracker,
        module: ThreadSafeModule,
    ) -> Result<FileUnits, JitError> {
        if self.linking.on_call.is_some() && !module.is_bound_to_process() {
            return self.units(tracker, module.to_bitcode()?);
        }
        let session = tracker.dylib().session();
        let unit = IrMaterializationUnit::from_module(session, self.layer.clone(), &self.target, module)?;
        self.whole(tracker, unit, UnitTraits::default().work_bytes)
    }

    /// The module of a file if its functions can be compiled one at a time.
    fn lazy_module(&self, source: &ObjectBuffer) -> Result<Option<LazyModule>, JitError> {
        let written;
        let bitcode = if FileKind::of(source.bytes()) == FileKind::Bitcode {
            source
        } else {
            written = ThreadSafeModule::parse_assembly(source)?.to_bitcode()?;
            &written
        };
        let (compiler, objects) = (self.layer.compiler(), self.linking.objects());
        let cache = self.layer.ir_cache();
        let read = match &self.tiers {
            Some((soon, tiers)) => LazyModule::read(bitcode, soon, objects, self.verifies_ir, cache)?
                .map(|module| module.with_tiers(compiler, tiers.clone())),
            None => LazyModule::read(bitcode, compiler, objects, self.verifies_ir, cache)?,
        };
        let names =
            |module: &LazyModule| allocates(module.interface().symbols.iter().map(|symbol| &*symbol.name));
        let why = match read {
            Ok(module) if !names(&module) => return Ok(Some(module)),
            Ok(_) => "it replaces functions that allocate".to_owned(),
            Err(why) => why.to_string(),
        };
        self.note_whole(source, &why);
        Ok(None)
    }

    fn note_whole(&self, source: &ObjectBuffer, why: &str) {
        // Counted by those who sum up phases.
        drop(uruk_core::inside(uruk_core::phase!("ir.whole", unit = %source.name(), why)));
        if let Some(hear) = &self.on_whole {
            hear(source.name(), why);
        }
    }

    /// Stubs for the functions of a module that is compiled as a whole, and its unit.
    fn lazy_file(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        module: &LazyModule,
        stubs: FileStubs,
    ) -> Result<FileUnits, JitError> {
        let (dylib, stubs) = (tracker.dylib(), Arc::new(stubs));
        let session = dylib.session();
        let layer: Arc<dyn IrLayer> = Arc::new(self.layer.with_stubs(self.linking.objects(), stubs.clone()));
        let work_bytes = source.size_bytes();
        let unit = IrMaterializationUnit::from_interface(session, layer, module.interface(), source);
        let mut units = self.whole(tracker, unit.with_stubs(session, &stubs), work_bytes)?;
        units.others.push(self.linking.lazy.lazy_file(dylib, &stubs));
        Ok(units)
    }

    /// Stubs for the functions of a module, their bodies, and the unit of its variables.
    fn lazy_functions(&self, tracker: &ResourceTracker, module: &LazyModule) -> Result<FileUnits, JitError> {
        let LazyUnits { mut data, stubs, bodies } = module.units(tracker, &self.linking.lazy);
        data.share_commons(tracker, &self.linking.commons)?;
        let traits = data.take_traits();
        Ok(FileUnits { unit: Box::new(data), traits, others: [stubs].into_iter().chain(bodies).collect() })
    }

    /// A module that is compiled as a whole.
    fn whole(
        &self,
        tracker: &ResourceTracker,
        mut unit: IrMaterializationUnit,
        work_bytes: usize,
    ) -> Result<FileUnits, JitError> {
        if !self.verifies_ir {
            unit.skip_verifier();
        }
        self.defined(tracker, unit, work_bytes)
    }

    fn defined(
        &self,
        tracker: &ResourceTracker,
        mut unit: IrMaterializationUnit,
        work_bytes: usize,
    ) -> Result<FileUnits, JitError> {
        unit.share_commons(tracker, &self.linking.commons)?;
        let traits = UnitTraits { work_bytes, ..unit.take_traits() };
        Ok(FileUnits::alone(Box::new(unit), traits))
    }
}
