//! The files of a dump, read back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use uruk::pipeline::ir::{Dump, Partition, PartitionPolicy};
use uruk::pipeline::tiers::{FirstTier, FunctionShape, TierPolicy};
use uruk::{Jit, JitBuilder, OnCall};

use crate::support::temporary;

/// A dump in a directory that goes at the end.
struct Dumped(Dump);

impl Dumped {
    fn new() -> Self {
        Self(Dump::to(temporary()).expect("the temporary directory is writable"))
    }

    fn engine(&self, change: impl FnOnce(JitBuilder) -> JitBuilder) -> Jit {
        change(Jit::builder().threads(1).dump(self.0.clone())).build().expect("an engine for this machine")
    }

    /// The contents of the files, by name.
    fn files(&self) -> BTreeMap<String, String> {
        assert!(self.0.failure().is_none(), "{:?}", self.0.failure());
        let entries = std::fs::read_dir(self.0.directory()).expect("it is there");
        let entries = entries.map(|entry| {
            let entry = entry.expect("it can be read");
            let bytes = std::fs::read(entry.path()).expect("it is a file");
            (
                entry.file_name().into_string().expect("plain letters"),
                String::from_utf8_lossy(&bytes).into_owned(),
            )
        });
        entries.collect()
    }

    /// The names of the files without their numbers.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.files().into_keys().map(|name| name[5..].to_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Dumped {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.directory());
    }
}

fn four(stem: &str) -> Vec<String> {
    ["in.ll", "o", "opt.ll", "s"].map(|kind| format!("{stem}.{kind}")).into()
}

const ANSWER: &str = "define i64 @answer() { %x = add i64 40, 2 ret i64 %x }";

#[test]
fn each_stage_of_a_module_has_a_file() {
    let dumped = Dumped::new();
    let jit = dumped.engine(|builder| builder);
    jit.add_ir_text("dir/answer \n.ll", ANSWER).expect("the name is free");
    assert!(dumped.files().is_empty(), "nothing is compiled yet");
    jit.lookup("answer").expect("it is there");
    assert_eq!(dumped.names(), four("answer_.ll.O2"));
    let files = dumped.files();
    let holds = |kind: &str, text: &str| files[&format!("0001-answer_.ll.O2.{kind}")].contains(text);
    assert!(holds("in.ll", "add i64 40, 2") && !holds("opt.ll", "add i64"), "{files:?}");
    assert!(holds("opt.ll", "ret i64 42") && holds("s", "$42"), "{files:?}");
    assert!(holds("o", "\u{7f}ELF"), "{files:?}");
}

/// Functions are compiled anew under names that are the same.
#[test]
fn what_is_compiled_again_overwrites_nothing() {
    let dumped = Dumped::new();
    let jit = dumped.engine(|builder| builder);
    for round in 0..3 {
        let tracker = jit.create_tracker();
        let text = ANSWER.replace("40", &format!("{round}"));
        jit.in_tracker(&tracker).add_ir_text("answer.ll", text.as_str()).expect("the name is free");
        jit.lookup("answer").expect("it is there");
        tracker.remove().expect("nothing of it objects");
    }
    drop(jit);
    // Another engine, and another dump, in the same directory.
    let again = Dump::to(dumped.0.directory()).expect("it is there");
    let jit = Jit::builder().threads(0).dump(again).build().expect("an engine for this machine");
    jit.add_ir_text("answer.ll", ANSWER).expect("the name is free");
    jit.lookup("answer").expect("it is there");
    let files = dumped.files();
    let came: Vec<_> = files.iter().filter(|(name, _)| name.ends_with("in.ll")).collect();
    let numbers: Vec<_> = came.iter().map(|(name, _)| &name[..4]).collect();
    assert_eq!(numbers, ["0001", "0002", "0003", "0004"]);
    for ((_, text), round) in came.iter().zip(["0", "1", "2", "40"]) {
        assert!(text.contains(&format!("add i64 {round}, 2")), "{text}");
    }
}

#[test]
fn a_function_that_is_compiled_by_itself_has_files_of_its_own() {
    let dumped = Dumped::new();
    let jit = dumped.engine(|builder| builder.compile_on_call(OnCall::Function));
    let text = "define i64 @\"<a/b>\"() { ret i64 1 } define i64 @never() { ret i64 2 }";
    jit.add_ir_text("functions.ll", text).expect("the names are free");
    // SAFETY: that is its type.
    let called = unsafe { jit.get::<extern "C" fn() -> i64>("<a/b>") }.expect("it is there");
    assert_eq!(called(), 1);
    let names = dumped.names();
    assert!(four("functions.ll_a_b_.O2").iter().all(|file| names.contains(file)), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("never")), "{names:?}");
}

/// Compiles the shorter function below, and the other one above.
#[derive(Debug)]
struct Below;

impl TierPolicy for Below {
    fn first(&self, shape: FunctionShape) -> FirstTier {
        if shape.instructions > 1 { FirstTier::Upper } else { FirstTier::Lower }
    }

    fn threshold(&self) -> u32 {
        u32::MAX
    }
}

#[test]
fn files_say_their_tier() {
    let dumped = Dumped::new();
    let jit = dumped.engine(|builder| builder.tiers(Below));
    let text =
        "define i64 @short() { ret i64 1 } define i64 @longer(i64 %x) { %y = mul i64 %x, %x ret i64 %y }";
    jit.add_ir_text("tiers.ll", text).expect("the names are free");
    // SAFETY: that is its type.
    let short = unsafe { jit.get::<extern "C" fn() -> i64>("short") }.expect("it is there");
    // SAFETY: that is its type.
    let longer = unsafe { jit.get::<extern "C" fn(i64) -> i64>("longer") }.expect("it is there");
    assert_eq!((short(), longer(3)), (1, 9));
    let names = dumped.names();
    let expected = [four("tiers.ll_short.O0"), four("tiers.ll_longer.O2")].concat();
    assert!(expected.iter().all(|file| names.contains(file)), "{names:?}");
}

#[test]
fn each_part_of_a_divided_module_has_files() {
    let dumped = Dumped::new();
    let partition = Partition::new(PartitionPolicy::Late, 2).of_all_modules();
    let jit = dumped.engine(|builder| builder.partition(partition));
    let text = "
        define i64 @a(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }
        define i64 @b(i64 %x) { %y = mul i64 %x, 5 ret i64 %y }
        define i64 @c(i64 %x) { %y = mul i64 %x, 7 ret i64 %y }";
    jit.add_ir_text("parts.ll", text).expect("the names are free");
    jit.lookup("a").expect("it is there");
    let whole = vec!["parts.ll.O2.in.ll".to_owned()];
    let parts = ["parts.ll.O2.part0", "parts.ll.O2.part1"].map(four).concat();
    assert_eq!(dumped.names(), [whole, parts].concat());
}

/// LLVM numbers and names things as it goes. A dump must not be seen in what it is a dump of.
#[test]
fn objects_are_the_same_with_a_dump() {
    use uruk::pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
    use uruk::pipeline::object::ObjectBuffer;
    let dumped = Dumped::new();
    let text = "
        @text = private constant [3 x i8] c\"ab\\00\"
        declare i32 @puts(ptr)
        define i32 @said(i32 %n) { %r = call i32 @puts(ptr @text) %s = mul i32 %r, %n ret i32 %s }";
    let plain = IrCompiler::host(OptimizationLevel::O2).expect("this machine");
    let watched = plain.clone().with_dump(dumped.0.clone());
    let object = |compiler: &IrCompiler| {
        let module =
            ThreadSafeModule::parse(&ObjectBuffer::new("said.ll", text.as_bytes())).expect("it is IR");
        compiler.compile(module).expect("it compiles").bytes().to_vec()
    };
    let expected = object(&plain);
    for _ in 0..2 {
        assert!(object(&watched) == expected && object(&plain) == expected);
    }
}

#[test]
fn a_directory_that_cannot_be_is_refused_and_one_that_goes_fails_nothing() {
    let (missing, file) = (temporary().join("missing"), temporary());
    std::fs::write(&file, "").expect("the temporary directory is writable");
    for path in [&missing, &file] {
        let refused = Dump::to(path).expect_err("nothing can be written there");
        assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
    }
    std::fs::remove_file(file).expect("it is ours");

    let dumped = Dumped::new();
    let jit = dumped.engine(|builder| builder);
    std::fs::remove_dir(dumped.0.directory()).expect("it is empty");
    jit.add_ir_text("answer.ll", ANSWER).expect("the name is free");
    jit.lookup("answer").expect("it is compiled all the same");
    let failure = dumped.0.failure().expect("the directory is gone");
    assert_eq!(failure.path, PathBuf::from(dumped.0.directory()).join("0001-answer.ll.O2.in.ll"));
}
