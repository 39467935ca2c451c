//! LLVM's pipeline of a level, cut into stages and put together again with hooks between them, makes the object that LLVM's makes.
//!
//! Over whole programs: what is lost when a pipeline is written down as a text shows in few functions. A run of a minute tries Lua at O2;
//! `URUK_STAGED=all` tries SQLite too, at all levels.
#![cfg(feature = "llvm")]

use uruk_pipeline::ir::{
    ExtensionPoint, IrCompiler, JitTargetMachineBuilder, OptimizationLevel, OptimizationPipeline, PassHook,
    Stage, ThreadSafeModule,
};
use uruk_pipeline::object::ObjectBuffer;
use uruk_tests::forms::Form;
use uruk_tests::program::Program;
use uruk_tests::sources::ProgramSource;

fn modules(name: &str, library: ProgramSource) -> Vec<ObjectBuffer> {
    let program = Program::load(name)
        .expect("the program is there")
        .with_library(library)
        .expect("the library is there");
    let files = program.build(Form::BitcodeO2).expect("it is built");
    let modules = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "bc"));
    modules.map(|file| ObjectBuffer::open(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn compile(source: &ObjectBuffer, pipeline: OptimizationPipeline) -> ObjectBuffer {
    let target = JitTargetMachineBuilder::host().expect("host");
    let module = ThreadSafeModule::parse(source).unwrap_or_else(|error| panic!("{error}"));
    IrCompiler::new(target, pipeline).compile(module).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn programs_compiled_in_stages_are_the_same_programs() {
    let is_whole = std::env::var_os("URUK_STAGED").is_some_and(|value| value == "all");
    let mut sources = modules("lua", ProgramSource::Lua);
    let mut levels = vec![OptimizationLevel::O2];
    if is_whole {
        sources.extend(modules("sqlite", ProgramSource::Sqlite));
        levels = OptimizationLevel::ALL.into();
    }
    let quiet = || PassHook::new("quiet", |_| Ok::<_, String>(()));
    for source in &sources {
        for level in &levels {
            let whole = OptimizationPipeline::level(*level);
            let mut staged = whole.clone();
            for stage in Stage::ALL {
                staged = staged.hook_before(stage, quiet()).hook_after(stage, quiet());
            }
            for point in ExtensionPoint::ALL {
                staged = staged.hook_at(point, quiet());
            }
            let is_same = compile(source, staged).bytes() == compile(source, whole).bytes();
            assert!(is_same, "{} at {level}", source.name());
        }
    }
}
