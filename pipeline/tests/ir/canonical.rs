//! A context keeps names for all its modules: a structure's name that another module had taken, and the kinds of metadata that others use.
//! They once showed in the bitcode of each module. The same module then had another cache key.

use uruk_core::sync::thread;
use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeContext, ThreadSafeModule};

use super::text;

const MODULES: usize = 10;

/// A module whose structure has the name that all others use, for another layout. It has a kind of metadata of its own,
/// shares one with the others, and declares an intrinsic that is named after the structure.
fn source(index: usize) -> String {
    format!(
        "%struct.S = type {{ i32, [{n} x i64] }}
         %struct.Only{index} = type {{ ptr, %struct.S }}
         @table = global %struct.Only{index} zeroinitializer, !own{index} !0
         declare i1 @llvm.is.constant.s_struct.Ss(%struct.S)
         declare void @consume(ptr)
         define i32 @f{index}(ptr %p) !shared !0 {{
           %s = load %struct.S, ptr %p
           %t = call i1 @llvm.is.constant.s_struct.Ss(%struct.S %s), !last{later} !1
           %field = getelementptr %struct.S, ptr %p, i32 0, i32 1, i32 {index}
           %v = load i32, ptr %field, !own{index} !0, !shared !1
           call void @consume(ptr %p)
           %x = zext i1 %t to i32
           ret i32 %x
         }}
         define available_externally void @not_compiled(ptr %p) {{
           call void @consume(ptr %p) [ \"bundle{index}\"(i32 1) ]
           ret void
         }}
         !0 = !{{i32 {index}}}
         !1 = !{{}}",
        n = index + 1,
        later = MODULES - index,
    )
}

fn module(context: &ThreadSafeContext, index: usize) -> ThreadSafeModule {
    ThreadSafeModule::parse_in(context, &text(&format!("module{index}.ll"), &source(index)))
        .expect("valid IR")
}

fn canonical(compiler: &IrCompiler, module: &ThreadSafeModule) -> Vec<u8> {
    let copy = compiler.canonical(module).expect("fits");
    copy.verify().expect("as valid as before");
    copy.to_bitcode().expect("writes").bytes().to_vec()
}

/// The canonical bitcode and the object of each module, when they are read into one context in this order.
fn in_one_context(order: impl Iterator<Item = usize>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (compiler, context) =
        (IrCompiler::host(OptimizationLevel::O1).expect("host"), ThreadSafeContext::new());
    let modules: Vec<_> = order.map(|index| (index, module(&context, index))).collect();
    let mut made: Vec<_> =
        modules.iter().map(|(index, module)| (*index, artifacts(&compiler, module))).collect();
    made.sort_unstable_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, made)| made).collect()
}

fn artifacts(compiler: &IrCompiler, module: &ThreadSafeModule) -> (Vec<u8>, Vec<u8>) {
    let copy = compiler.canonical(module).expect("fits");
    (canonical(compiler, module), compiler.compile(copy).expect("compiles").bytes().to_vec())
}

#[test]
fn canonical_bitcode_tells_nothing_of_what_else_lives_in_the_context() {
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("host");
    let alone: Vec<_> =
        (0..MODULES).map(|index| artifacts(&compiler, &module(&ThreadSafeContext::new(), index))).collect();
    for (index, (bitcode, _)) in alone.iter().enumerate() {
        assert!(alone[..index].iter().all(|(other, _)| other != bitcode), "{index} differs from the others");
    }
    assert!(in_one_context(0..MODULES) == alone, "in order");
    assert!(in_one_context((0..MODULES).rev()) == alone, "reversed");
    // The plain bitcode of a module in company is another one: that is what this is about.
    let context = ThreadSafeContext::new();
    let company: Vec<_> = (0..MODULES).map(|index| module(&context, index)).collect();
    let plain = company[3].to_bitcode().expect("writes");
    assert_ne!(plain.bytes(), module(&ThreadSafeContext::new(), 3).to_bitcode().expect("writes").bytes());
    // Threads take the one context in any order.
    let made = thread::scope(|scope| {
        let threads: Vec<_> =
            company.iter().map(|module| scope.spawn(|| artifacts(&compiler, module))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(made == alone, "threads");
}

#[test]
fn a_canonical_copy_of_a_canonical_copy_is_the_same() {
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("host");
    let once = compiler.canonical(&module(&ThreadSafeContext::new(), 4)).expect("fits");
    assert_eq!(canonical(&compiler, &once), once.to_bitcode().expect("writes").bytes());
}

#[test]
fn metadata_in_use_stays_and_what_others_use_goes() {
    let (compiler, context) =
        (IrCompiler::host(OptimizationLevel::O1).expect("host"), ThreadSafeContext::new());
    let modules: Vec<_> = (0..3).map(|index| module(&context, index)).collect();
    let copy = compiler.canonical(&modules[1]).expect("fits");
    let bitcode = copy.to_bitcode().expect("writes");
    let text = copy.with_module(|module| module.print_to_string().to_string()).expect("sound");
    for kept in ["!own1 ", "!shared ", "!last9 ", "\"bundle1\""] {
        assert!(text.contains(kept), "{kept} in {text}");
    }
    assert!(!text.contains("struct.S") && text.contains("[2 x i64]"), "{text}");
    // A kind that is new to the context has a number above all that were there.
    let again = ThreadSafeModule::parse(&bitcode).expect("valid");
    let kinds = again
        .with_module(|module| {
            let context = module.get_context();
            ["new", "own1", "shared", "last9", "own0", "own2"].map(|name| context.get_kind_id(name))
        })
        .expect("sound");
    assert!(kinds[1..4].iter().all(|kept| *kept < kinds[0]), "{kinds:?}");
    assert!(kinds[4..].iter().all(|gone| *gone > kinds[0]), "{kinds:?}");
}
