//! `uruk opt`: a module goes through the engine's passes, and is written.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use uruk::pipeline::ir::{
    CompileError, IrCompiler, JitTargetMachineBuilder, OptimizationLevel, OptimizationPipeline, Stage,
    ThreadSafeModule,
};
use uruk::pipeline::object::ObjectBuffer;

use super::clang::{self, ClangError};
use super::values::{level, stage, stage_passes};

/// `uruk opt`.
#[derive(Debug, Args)]
pub(crate) struct OptArgs {
    /// .ll or .bc; .c .cc .cpp .cxx where clang is found. `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "print_stages")]
    pub(crate) file: Option<PathBuf>,

    /// The level whose pipeline runs.
    #[arg(short = 'O', value_name = "0|1|2|3|s|z", default_value = "2", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,

    /// Print what each stage runs, and optimize nothing.
    #[arg(long, conflicts_with_all = ["file", "stop_after", "before", "after", "replace", "output"])]
    pub(crate) print_stages: bool,

    /// Leave out the stages behind this one.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    pub(crate) stop_after: Option<Stage>,

    /// Run other passes in a stage's place; none, if nothing stands behind the `=`. Repeatable.
    #[arg(long, value_name = "STAGE=PASSES", value_parser = stage_passes)]
    pub(crate) replace: Vec<(Stage, String)>,

    /// Run passes before a stage. Repeatable.
    #[arg(long, value_name = "STAGE=PASSES", value_parser = stage_passes)]
    pub(crate) before: Vec<(Stage, String)>,

    /// Run passes after a stage. Repeatable.
    #[arg(long, value_name = "STAGE=PASSES", value_parser = stage_passes)]
    pub(crate) after: Vec<(Stage, String)>,

    /// Where the module goes: bitcode if the name ends in .bc, text otherwise [default: text, to standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Why no optimized module was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Clang(#[from] ClangError),
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Does what is asked.
pub(crate) fn opt(args: &OptArgs) -> Result<(), OptError> {
    let target = JitTargetMachineBuilder::host()?;
    let compiler = IrCompiler::new(target, pipeline(args));
    let Some(file) = &args.file else {
        return write(None, print_stages(args, &compiler.stages()?).as_bytes());
    };
    compiler.check_pipeline()?;
    let module = ThreadSafeModule::parse(&read(file, args)?)?;
    compiler.optimize(&module)?;
    let output = args.output.as_deref();
    if output.is_some_and(|path| path.extension().is_some_and(|extension| extension == "bc")) {
        return write(output, module.to_bitcode()?.bytes());
    }
    write(output, module.with_module(|module| module.to_string())?.as_bytes())
}

fn pipeline(args: &OptArgs) -> OptimizationPipeline {
    let mut pipeline = OptimizationPipeline::level(args.optimize);
    for (stage, passes) in &args.replace {
        pipeline = pipeline.replace(*stage, passes);
    }
    for (stage, passes) in &args.before {
        pipeline = pipeline.before(*stage, passes);
    }
    for (stage, passes) in &args.after {
        pipeline = pipeline.after(*stage, passes);
    }
    match args.stop_after {
        Some(stage) => pipeline.up_to(stage),
        None => pipeline,
    }
}

/// A stage is a paragraph: its name, what it runs over, its passes.
fn print_stages(args: &OptArgs, stages: &[(Stage, String)]) -> String {
    let paragraphs = stages.iter().map(|(stage, passes)| {
        let over = match (stage.is_in_walk() && args.optimize.has_walk(), stage.is_of_functions()) {
            (true, _) => "over each function, each time something was inlined",
            (false, true) => "over each function",
            (false, false) => "over the module",
        };
        let passes = if passes.is_empty() { "(nothing)" } else { passes };
        format!("{stage}, {over}:\n  {passes}\n")
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

fn read(file: &Path, args: &OptArgs) -> Result<ObjectBuffer, OptError> {
    let failed = |source| OptError::Read { path: file.to_owned(), source };
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
        bytes
    } else {
        match clang::language(file) {
            Some(language) => {
                let optimize = args.optimize;
                let options = clang::SourceOptions::here(optimize);
                clang::compile_to_bitcode(file, language, options)?
            }
            None => std::fs::read(file).map_err(failed)?,
        }
    };
    Ok(ObjectBuffer::new(file.display().to_string(), bytes))
}

fn write(output: Option<&Path>, bytes: &[u8]) -> Result<(), OptError> {
    let failed = |path: &Path, source| OptError::Write { path: path.to_owned(), source };
    match output {
        Some(path) => std::fs::write(path, bytes).map_err(|source| failed(path, source)),
        None => match io::stdout().lock().write_all(bytes) {
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|source| failed(Path::new("standard output"), source)),
        },
    }
}
