//! The modules that end-to-end cases compile, as the peer's generator writes them.

use std::path::Path;

use uruk::pipeline::ir::{
    CodegenLevel, JitTargetMachineBuilder, ModuleInterface, OptimizationLevel, OptimizationPipeline,
    ThreadSafeModule,
};
use uruk::pipeline::object::ObjectBuffer;

/// A module as bitcode in memory, and what it defines.
pub(crate) struct Module {
    pub(crate) bitcode: ObjectBuffer,
    pub(crate) interface: ModuleInterface,
}

/// Reads all modules of `folder`, by name.
pub(crate) fn load(folder: &Path) -> Result<Vec<Module>, String> {
    let target = JitTargetMachineBuilder::host().map_err(|error| error.to_string())?;
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}; see --data", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ll"));
    paths.sort();
    if paths.is_empty() {
        return Err(format!("no modules (*.ll) in {}", folder.display()));
    }
    let read = |path: &Path| -> Result<Module, Box<dyn std::error::Error>> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = ObjectBuffer::new(&*name, std::fs::read(path)?);
        let bitcode = ThreadSafeModule::parse(&text)?.to_bitcode()?;
        // In memory of ours, as the peer's is.
        let bitcode = ObjectBuffer::new(&*name, bitcode.bytes().to_vec());
        let interface = ModuleInterface::of_bitcode(&bitcode, &target)?;
        Ok(Module { bitcode, interface })
    };
    let read = |path: &std::path::PathBuf| read(path).map_err(|error| format!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
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

    /// As lines say it.
    pub(crate) fn json(self) -> String {
        format!("\"{}\"", self.optimization())
    }
}
