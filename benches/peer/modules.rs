//! The modules that end-to-end cases compile.

use std::path::Path;

use uruk::pipeline::ir::{
    CodegenLevel, CompileError, JitTargetMachineBuilder, ModuleInterface, OptimizationLevel,
    OptimizationPipeline, ThreadSafeModule,
};
use uruk::pipeline::object::ObjectBuffer;

use crate::generate;
use crate::point::Inputs;

/// A module as bitcode in memory, and its interface.
pub(crate) struct Module {
    pub(crate) bitcode: ObjectBuffer,
    pub(crate) interface: ModuleInterface,
}

/// All modules, from files or made here.
pub(crate) fn load(inputs: &Inputs) -> Result<Vec<Module>, String> {
    let sources = match inputs.modules() {
        Some(folder) => in_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?,
        None => generated(inputs.scale.pick(10, 200)),
    };
    let target = JitTargetMachineBuilder::host().map_err(|error| error.to_string())?;
    let read = |(name, text): (String, Vec<u8>)| {
        let bitcode = ThreadSafeModule::parse(&ObjectBuffer::new(&*name, text))?.to_bitcode()?;
        // In memory of ours, as the peer's is.
        let bitcode = ObjectBuffer::new(&*name, bitcode.bytes().to_vec());
        let interface = ModuleInterface::of_bitcode(&bitcode, &target)?;
        Ok(Module { bitcode, interface })
    };
    let read: Result<_, CompileError> = sources.into_iter().map(read).collect();
    read.map_err(|error| error.to_string())
}

/// Names and texts of the modules in `folder`, by name.
fn in_folder(folder: &Path) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ll") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            modules.push((name, std::fs::read(path)?));
        }
    }
    modules.sort();
    if modules.is_empty() { Err(std::io::Error::other("no modules (*.ll) there")) } else { Ok(modules) }
}

fn generated(modules: usize) -> Vec<(String, Vec<u8>)> {
    let module = |number| (format!("m{number:04}"), generate::module(number, modules).into_bytes());
    (0..modules).map(module).collect()
}

/// Reads a module into a context of its own, and does not verify it, as the peer does not.
pub(crate) fn parse(module: &Module) -> ThreadSafeModule {
    ThreadSafeModule::parse_unverified(&module.bitcode).expect("the generator's modules are valid")
}

/// How much is optimized.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// No passes over IR, and code as quickly as it can be had.
    O0,
    O2,
}

impl Level {
    pub(crate) fn pipeline(self) -> OptimizationPipeline {
        match self {
            Self::O0 => OptimizationPipeline::none(),
            Self::O2 => OptimizationPipeline::level(OptimizationLevel::O2),
        }
    }

    pub(crate) fn optimization(self) -> OptimizationLevel {
        match self {
            Self::O0 => OptimizationLevel::O0,
            Self::O2 => OptimizationLevel::O2,
        }
    }

    pub(crate) fn codegen(self) -> CodegenLevel {
        self.optimization().into()
    }

    /// As labels say it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::O0 => ":O0",
            Self::O2 => ":O2",
        }
    }

    /// As options say it.
    pub(crate) fn name(self) -> &'static str {
        self.label().trim_start_matches(':')
    }

    /// The level of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::O0, Self::O2].into_iter().find(|level| level.name() == name)
    }

    /// As lines say it.
    pub(crate) fn json(self) -> String {
        format!("\"{}\"", self.optimization())
    }
}
