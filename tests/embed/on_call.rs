//! Modules whose functions are compiled when they are first called.

use uruk::core::{FnUnit, SymbolFlags};
use uruk::pipeline::ir::{OptimizationLevel, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, FunctionPointer, Jit, JitBuilder, JitError, OnCall};

use crate::support::{alone, cpp, engine, is_alone};

type Answer = extern "C" fn() -> i32;

fn builder() -> JitBuilder {
    Jit::builder().threads(1).compile_on_call(OnCall::Function)
}

fn with_text(builder: JitBuilder, text: &str) -> Jit {
    let jit = builder.build().expect("an engine for this machine");
    jit.add_ir_text("module.ll", text).expect("valid IR, and a new name");
    jit
}

fn get<F: FunctionPointer>(jit: &Jit, symbol: &str) -> Function<F> {
    // SAFETY: the callers say what their sources define, and copy no pointer out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

fn pieces(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

#[test]
fn of_a_module_that_is_compiled_which_is_called() {
    let jit = with_text(
        builder(),
        "@count = internal global i32 0
         @other_name = alias i32 (), ptr @next
         define i32 @next() { %n = load i32, ptr @count  %m = add i32 %n, 1  store i32 %m, ptr @count  ret i32 %m }
         define internal i32 @twice() { %a = call i32 @next()  %b = call i32 @next()  %s = add i32 %a, %b  ret i32 %s }
         define i32 @choose(i1 %calls) { br i1 %calls, label %call, label %leave
           call: %s = call i32 @twice()  ret i32 %s
           leave: ret i32 0 }
         define i32 @never() { ret i32 1 }",
    );
    let choose = get::<extern "C" fn(bool) -> i32>(&jit, "choose");
    assert_eq!(pieces(&jit), 1, "the stubs");
    assert_eq!((choose(false), pieces(&jit)), (0, 2));
    // `twice`, `next`, and the variable that both calls share.
    assert_eq!((choose(true), pieces(&jit)), (3, 5));
    assert_eq!((choose(true), pieces(&jit)), (7, 5));
    let [next, other] = ["next", "other_name"].map(|name| jit.lookup(name).expect("its stub").address);
    assert_eq!(next, other);
    assert_eq!((get::<Answer>(&jit, "other_name")(), pieces(&jit)), (5, 5));
}

/// A module that was built in memory was compiled as a whole, and nothing said so.
#[test]
fn of_a_module_in_memory_which_is_called() {
    let text = "define i32 @answer() { ret i32 42 } define i32 @never() { ret i32 1 }";
    let module =
        || ThreadSafeModule::parse(&ObjectBuffer::new("module.ll", text.as_bytes())).expect("valid IR");
    let jit = builder().build().expect("an engine for this machine");
    jit.add_module(module()).expect("new names");
    let answer = get::<Answer>(&jit, "answer");
    assert_eq!(pieces(&jit), 1, "the stubs");
    assert_eq!((answer(), pieces(&jit)), (42, 2));

    // Addresses of this process must not get into a cache, which keeps functions.
    let jit = builder().build().expect("an engine for this machine");
    jit.add_module(module().bound_to_process()).expect("new names");
    assert_eq!((get::<Answer>(&jit, "answer")(), pieces(&jit)), (42, 1));
}

/// The names of a lazy program: of a stub, of a body that was not called, and of one that was.
#[test]
fn a_session_says_where_functions_stand_that_are_compiled_on_call() {
    let jit = with_text(builder(), "define i32 @answer() { ret i32 42 }");
    let why = |name: &str| jit.session().why(jit.main_dylib(), &jit.intern(name)).to_string();
    assert!(why("answer").contains("nobody has looked for it"), "{}", why("answer"));
    let answer = get::<Answer>(&jit, "answer");
    assert!(why("answer").contains("is ready"), "{}", why("answer"));
    assert_eq!(answer(), 42);
}

/// Neither may be compiled when the signal comes: it may have interrupted an allocation.
#[test]
fn a_handler_is_compiled_when_it_is_installed_with_what_it_calls() {
    const INSTALL: &str = "
        @got = global i32 0
        declare ptr @signal(i32, ptr)
        declare i32 @raise(i32)
        define internal void @note(i32 %signal) { store i32 %signal, ptr @got  ret void }
        define internal void @handle(i32 %signal) { call void @note(i32 %signal)  ret void }
        define i32 @never(i32 %x) { ret i32 %x }
        define void @install() { %before = call ptr @signal(i32 12, ptr @handle)  ret void }
        define i32 @take() { %raised = call i32 @raise(i32 12)  %g = load i32, ptr @got  ret i32 %g }";
    if !is_alone() {
        let output = alone("on_call::a_handler_is_compiled_when_it_is_installed_with_what_it_calls");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let jit = with_text(builder(), INSTALL);
    let install = get::<extern "C" fn()>(&jit, "install");
    assert_eq!(pieces(&jit), 1, "the stubs");
    install();
    // `install`, `handle`, `note` and the variable.
    assert_eq!(pieces(&jit), 5);
    let take = get::<Answer>(&jit, "take");
    assert_eq!((take(), pieces(&jit)), (12, 6));
}

/// A first call between the two steps of `std::call_once`, of a function whose compiler calls `std::call_once` itself.
#[test]
fn a_first_call_leaves_what_call_once_keeps_for_the_thread() {
    const COMPILE: &str = "
        #include <mutex>
        extern \"C\" void compile() { std::once_flag flag; std::call_once(flag, [] {}); }";
    const CALLER: &str = "
        #include <mutex>
        extern \"C\" void compile();
        extern \"C\" int first();
        extern \"C\" int check() {
            int mine = 0;
            std::__once_callable = &mine; std::__once_call = [] {};
            auto call = std::__once_call;
            int got = first();
            bool kept = std::__once_callable == &mine && std::__once_call == call;
            std::__once_callable = nullptr; std::__once_call = nullptr;
            return kept ? got : -1;
        }
        extern \"C\" int check_compile() {
            int mine = 0;
            std::__once_callable = &mine; compile();
            return std::__once_callable == &mine;
        }";
    let jit = engine(0);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    jit.add_object(cpp("body.o", "extern \"C\" int body() { return 41; }")).expect("a new name");
    jit.add_object(cpp("compile.o", COMPILE)).expect("a new name");
    let first = jit.intern("first");
    let body = jit.lookup("body").expect("it is there").address;
    let compile = get::<extern "C" fn()>(&jit, "compile");
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let unit = FnUnit::with_flags([(first, flags)].into_iter().collect(), move |request| {
        compile();
        request.addresses([("first", body)])
    });
    bodies.dylib().define(Box::new(unit)).expect("a new name");
    jit.add_lazy(&bodies, ["first"]).expect("it is there");
    jit.add_object(cpp("caller.o", CALLER)).expect("a new name");
    assert_eq!(get::<Answer>(&jit, "check_compile")(), 0, "it changes what `call_once` keeps");
    assert_eq!(get::<Answer>(&jit, "check")(), 41);
}

fn refusal(level: OptimizationLevel, text: &str) -> Option<String> {
    match with_text(builder().optimization(level), text).link("main") {
        Ok(_) => None,
        Err(error @ JitError::Lookup(_)) => Some(uruk::core::WithCauses(&error).to_string()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_missing_is_refused_at_start_where_something_can_get_at_it() {
    let main = "declare i32 @absent()  define i32 @main() { ret i32 0 }";
    let reached = [
        "define i32 @lost() { %x = call i32 @absent()  ret i32 %x }",
        "define i32 @lost() { %x = call i32 @inner()  ret i32 %x }
         define internal i32 @inner() { %x = call i32 @absent()  ret i32 %x }",
        "@table = global ptr @inner
         define internal i32 @inner() { %x = call i32 @absent()  ret i32 %x }",
        "@name = alias i32 (), ptr @inner
         define internal i32 @inner() { %x = call i32 @absent()  ret i32 %x }",
    ];
    for text in reached {
        for level in [OptimizationLevel::O0, OptimizationLevel::O2] {
            let refusal = refusal(level, &format!("{main} {text}")).expect("`absent` is nowhere");
            assert!(refusal.contains("undefined: `absent` (needed by `"), "{refusal}");
            assert!(!refusal.contains("body of"), "{refusal}");
        }
    }
    // Two that call each other, and have no other callers. At O0 they stay, as in a module that is compiled as a whole.
    let unreached = "
        define internal i32 @even(i32 %x) { %y = call i32 @odd(i32 %x)  %z = call i32 @absent()  ret i32 %z }
        define internal i32 @odd(i32 %x) { %y = call i32 @even(i32 %x)  ret i32 %y }";
    let text = format!("{main} {unreached}");
    assert_eq!(refusal(OptimizationLevel::O2, &text), None);
    assert!(refusal(OptimizationLevel::O0, &text).is_some());
    // The same two where their module is compiled as a whole.
    for (level, is_refused) in [(OptimizationLevel::O2, false), (OptimizationLevel::O0, true)] {
        let whole = Jit::builder().threads(1).optimization(level);
        assert_eq!(with_text(whole, &text).link("main").is_err(), is_refused, "{level:?}");
    }
}

/// Nothing refers to the file.
#[test]
fn a_file_that_nobody_needs_is_refused_for_what_it_misses() {
    let jit = with_text(builder(), "define i32 @main() { ret i32 0 }");
    let lost = "declare i32 @absent()  define i32 @lost() { %x = call i32 @absent()  ret i32 %x }";
    jit.add_ir_text("lost.ll", lost).expect("a new name");
    let error = uruk::core::WithCauses(&jit.link("main").expect_err("`absent` is nowhere")).to_string();
    assert!(error.contains("undefined: `absent` (needed by `lost` at lost.ll: .text"), "{error}");
}
