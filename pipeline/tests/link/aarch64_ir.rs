//! LLVM IR for AArch64: compiled by the engine, compared with `llc`, linked into made-up memory. Skipped without `llc` and clang.

use std::io::Write as _;
use std::process::Command;

use object::{Object as _, ObjectSection as _};
use uruk_pipeline::arch::Architecture;
use uruk_pipeline::ir::{IrCompiler, JitTargetMachineBuilder, OptimizationPipeline, ThreadSafeModule};
use uruk_pipeline::link::elf;
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

use crate::aarch64::{has_tools, link_at};
use crate::link_support::external;

const LLC: &str = "llc-22";
const SOURCE: &str = "
    @own = global i64 5
    @other = external global i64
    @local = thread_local global i64 7
    declare i64 @far(i64)
    declare ptr @llvm.threadlocal.address.p0(ptr)
    define i64 @sum(i64 %x) {
        %a = load i64, ptr @own
        %b = load i64, ptr @other
        %where = call ptr @llvm.threadlocal.address.p0(ptr @local)
        %c = load i64, ptr %where
        %d = call i64 @far(i64 %x)
        %e = add i64 %a, %b
        %f = add i64 %c, %d
        %g = add i64 %e, %f
        ret i64 %g
    }";

fn compiled() -> ObjectBuffer {
    let target = JitTargetMachineBuilder::of_architecture(Architecture::AArch64).expect("a target");
    assert_eq!(target.architecture(), Some(Architecture::AArch64));
    let module = ThreadSafeModule::parse(&ObjectBuffer::new("sum.ll", SOURCE.as_bytes())).expect("a module");
    IrCompiler::new(target, OptimizationPipeline::none()).compile(module).expect("LLVM has the target")
}

/// The code of an object, and its relocations: place, kind, addend.
fn code_of(object: &[u8]) -> (Vec<u8>, Vec<String>) {
    let file = object::File::parse(object).expect("an object");
    let text = file.section_by_name(".text").expect("it has code");
    let relocations = text
        .relocations()
        .map(|(at, relocation)| format!("{at:#x} {:?} {:#x}", relocation.flags(), relocation.addend()));
    (text.data().expect("it has contents").to_vec(), relocations.collect())
}

#[test]
fn ir_becomes_the_code_that_llc_makes_of_it() {
    if Command::new(LLC).arg("--version").output().is_err() {
        writeln!(std::io::stderr(), "skipped: there is no {LLC}").expect("standard error");
        return;
    }
    let ours = compiled();
    let interface = ObjectInterface::read(&ours).expect("an object");
    assert_eq!(interface.architecture, Architecture::AArch64);
    let base = std::env::temp_dir().join(format!("uruk-aarch64-ir-{}", std::process::id()));
    let (source, theirs) = (base.with_extension("ll"), base.with_extension("o"));
    std::fs::write(&source, SOURCE).expect("the temporary directory is writable");
    let options =
        ["-mtriple=aarch64-unknown-linux-gnu", "-relocation-model=pic", "-O2", "-filetype=obj", "-o"];
    let made = Command::new(LLC).args(options).arg(&theirs).arg(&source).output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    let bytes = std::fs::read(&theirs).expect("it was made");
    assert_eq!(code_of(ours.bytes()), code_of(&bytes));
    for file in [source, theirs] {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn ir_for_it_is_linked() {
    if !has_tools() {
        writeln!(std::io::stderr(), "skipped: there is no clang, or no ld.lld").expect("standard error");
        return;
    }
    let object = compiled();
    let graph = elf::parse("sum.o", object.bytes()).expect("an object");
    let far = [("far", 0x9_0000_0000), ("other", 0x8_0000_0000)];
    let far = far.map(|(name, address)| (name.to_owned(), external(address))).into_iter().collect();
    let linked = link_at(0x4000_0000, 0x4100_0000, graph, &far).unwrap_or_else(|error| panic!("{error}"));
    assert!(linked.definitions.contains_key("sum"), "{:?}", linked.definitions);
}
