//! The steps around the compilation of modules, each alone, on one thread, over all modules.

use uruk::Jit;
use uruk::pipeline::ir::{IrCompiler, JitTargetMachineBuilder, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk_core::LookupRequest;

use crate::harness::{Row, Sample, Scale, repeat};
use crate::modules::{Level, Module, parse};
use crate::support::{order, set};

/// The engine itself copies no module to another context; that part is there because the peer's eager case does.
pub(crate) fn parts(scale: Scale, modules: &[Module], level: Level) {
    let target = JitTargetMachineBuilder::host().expect("a code generator for this machine");
    let target = target.with_codegen_level(level.codegen());
    let compiler = IrCompiler::new(target.clone(), level.pipeline());
    let compile = |module| compiler.compile(parse(module)).expect("valid modules compile");
    let objects: Vec<ObjectBuffer> = modules.iter().map(compile).collect();
    let samples = repeat(scale, |_| {
        let mut sample = Sample::default();
        let mut parsed: Vec<ThreadSafeModule> =
            sample.part("parse_cpu_ms", || modules.iter().map(parse).collect());
        sample.part("clone_to_new_context_cpu_ms", || {
            for module in &mut parsed {
                *module = module.clone_to_new_context().expect("a sound context");
            }
        });
        sample.part("destroy_modules_cpu_ms", || drop(parsed));
        sample.part("create_target_machine_cpu_ms", || {
            for number in 0..modules.len() {
                drop(with_machine_of_its_own(&target, number));
            }
        });
        sample.part("link_jit_cpu_ms", || link(&objects, modules));
        sample
    });
    Row {
        case: "e2e_parts",
        parameters: vec![("opt", level.json())],
        n: modules.len(),
        threads: 1,
        operations: modules.len(),
    }
    .report(&samples);
}

/// A target like `target` for which no thread has a machine yet: one has been made when this returns.
pub(crate) fn with_machine_of_its_own(
    target: &JitTargetMachineBuilder,
    number: usize,
) -> JitTargetMachineBuilder {
    // Machines are kept by their options: this one changes nothing in the small code model.
    let mut options = target.options().clone();
    options.large_data_threshold_bytes += number as u64 + 1;
    JitTargetMachineBuilder::new(options).expect("as for the first")
}

/// Links all objects in an engine that works in place, whose making counts.
fn link(objects: &[ObjectBuffer], modules: &[Module]) {
    let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
    for object in objects {
        jit.add_object(object.clone()).expect("the compiler's objects are sound");
    }
    let symbols = modules.iter().flat_map(|module| &module.interface.symbols);
    let names: Vec<_> = symbols.map(|symbol| jit.intern(&symbol.name)).collect();
    let found = jit
        .session()
        .lookup(LookupRequest::new(order([jit.main_dylib()]), set(&names)))
        .expect("every object links");
    assert_eq!(found.len(), names.len());
}
