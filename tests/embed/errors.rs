//! Errors as an embedder prints them who uses `anyhow`: each sentence once.
//!
//! Most messages once ended with the message of their source, so that a reporter that prints the sources too said everything
//! twice, and the cycle of a deadlock as often as units stood in it. An undefined symbol was told with the unit that
//! needed it, and not with the function.

use std::error::Error;
use std::iter::successors;

use uruk::OnCall;
use uruk::core::sync::Arc;
use uruk::core::{
    DefinitionGenerator, FnRequest, FnUnit, GenerateRequest, LookupRequest, LookupSet, ResolveError,
    SymbolMap, shared_error,
};
use uruk::prelude::*;

use crate::support::engine;

/// The expected texts, a case a heading.
const EXPECTED: &str = include_str!("errors.txt");

#[test]
fn every_error_says_its_own_sentence_once() {
    let mut printed = String::new();
    for (name, error) in cases() {
        let texts: Vec<String> = successors(Some(&*error as &dyn Error), |error| (*error).source())
            .map(ToString::to_string)
            .collect();
        for (index, text) in texts.iter().enumerate() {
            let earlier = &texts[..index];
            assert!(
                !earlier.iter().any(|earlier| earlier.contains(text)),
                "`{text}` is told twice: {texts:#?}"
            );
        }
        let report = format!("{:?}", anyhow::Error::from_boxed(error));
        let report = report.split("\n\nStack backtrace:").next().unwrap_or_default();
        printed += &format!("== {name}\n{}\n\n", without_directory(report, "libgcc.a"));
    }
    assert_eq!(printed.trim_end(), EXPECTED.trim_end(), "tests/embed/errors.txt has to say this:\n{printed}");
}

/// The compiler's runtime lies somewhere else on every machine.
fn without_directory(report: &str, file: &str) -> String {
    let word = |word: &str| match word.find(file) {
        Some(at) if word.starts_with('/') => word[at..].to_owned(),
        _ => word.to_owned(),
    };
    report.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

type Failed = Box<dyn Error + Send + Sync>;

/// Each error, made anew.
fn cases() -> Vec<(&'static str, Failed)> {
    vec![
        ("a symbol that nobody defines", not_found()),
        ("a symbol that a function refers to and nobody defines", undefined(false)),
        ("the same, two functions further", undefined(true)),
        ("functions of C++ that nobody defines", mangled()),
        ("a name that resembles one that is defined", slip()),
        ("a function that is compiled when it is called, and lacks something", on_call()),
        ("units that wait for each other", deadlock()),
        ("a unit that fails with an error of its own", unit_failed()),
        ("a unit that gave no address", no_address()),
        ("a unit that panicked", panicked()),
        ("a file that is not there", read()),
        ("a module that is no IR", parse()),
        ("a symbol defined twice", duplicate()),
        ("a transaction that was refused", transaction()),
        ("a library that is not there", library()),
        ("a definition generator that failed", generator()),
    ]
}

/// A host that gives out hints, or defines what is missing and asks again, has to know what it is. It once was a symbol of
/// [`LookupError::NotFound`] only if the host had asked for that symbol itself; what a function referred to was text.
#[test]
fn what_is_missing_is_told_by_type() {
    for (told, missing) in [
        (not_found(), "missing"),
        (undefined(false), "absent"),
        (undefined(true), "absent"),
        (unit_misses("nowhere"), "nowhere"),
    ] {
        let told = *told.downcast::<JitError>().expect("an error of the engine");
        let names: Vec<_> = told.missing_symbols().iter().map(ToString::to_string).collect();
        assert_eq!(names, [missing], "{told}");
    }
    for another in [deadlock(), unit_failed(), no_address(), generator()] {
        let another = another.downcast::<JitError>().expect("an error of the engine");
        assert!(another.missing_symbols().is_empty(), "{another}");
    }

    // The same by the standard's means: the lookup of what the function refers to is a cause.
    let report = anyhow::Error::from_boxed(undefined(true));
    let not_found = report.chain().find_map(|cause| match cause.downcast_ref() {
        Some(LookupError::NotFound { symbols, .. }) => Some(symbols),
        _ => None,
    });
    assert_eq!(not_found.expect("a cause")[0].as_str(), "absent");
}

/// A unit that fails with what [`Jit`] told it.
fn unit_misses(other: &'static str) -> Failed {
    let jit = engine(0);
    jit.add_unit(Box::new(FnUnit::new([jit.intern("f")], needs(other)))).expect("a new name");
    error(jit.lookup("f"))
}

fn error<T>(outcome: Result<T, impl Into<Failed>>) -> Failed {
    match outcome {
        Ok(_) => panic!("this fails"),
        Err(error) => error.into(),
    }
}

fn not_found() -> Failed {
    error(engine(0).lookup("missing"))
}

fn undefined(from_afar: bool) -> Failed {
    let jit = engine(0);
    let caller = "declare i32 @absent(i32) define i32 @caller(i32 %x) { %y = call i32 @absent(i32 %x) %z = add i32 %y, 1 ret i32 %z }";
    jit.add_ir_text("caller.ll", caller).expect("valid IR");
    let top = "declare i32 @caller(i32) define i32 @top() { %y = call i32 @caller(i32 1) ret i32 %y }";
    jit.add_ir_text("top.ll", top).expect("valid IR");
    error(jit.lookup(if from_afar { "top" } else { "caller" }))
}

fn mangled() -> Failed {
    let jit = engine(0);
    let text = "declare void @_ZN7Account7depositENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(ptr)
                @_ZN7Account5countE = external global i32
                define i32 @caller() { call void @_ZN7Account7depositENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(ptr null)
                                       %c = load i32, ptr @_ZN7Account5countE ret i32 %c }";
    jit.add_ir_text("caller.ll", text).expect("valid IR");
    error(jit.lookup("caller"))
}

fn slip() -> Failed {
    let jit = engine(0);
    jit.add_ir_text("helper.ll", "define i32 @helper() { ret i32 1 }").expect("valid IR");
    // SAFETY: there is no such function.
    error(unsafe { jit.get::<extern "C" fn() -> i32>("hepler") }.map(|_| ()))
}

fn on_call() -> Failed {
    let jit = Jit::builder()
        .threads(0)
        .compile_on_call(OnCall::Function)
        .build()
        .expect("an engine for this machine");
    let caller = "declare i32 @absent() define i32 @caller() { %y = call i32 @absent() ret i32 %y } define i32 @main() { ret i32 1 }";
    jit.add_ir_text("caller.ll", caller).expect("valid IR");
    error(jit.link("main"))
}

/// The work of a unit that looks another symbol up with [`Jit`] or the session, and fails with what it is told.
fn needs(other: &'static str) -> impl FnOnce(&mut FnRequest<'_>) -> Result<SymbolMap, Failed> + Send {
    move |request| {
        let other = request.session().intern(other);
        // As a compiler does that has error types of its own.
        request
            .session()
            .lookup(LookupRequest::along(request.dylib(), LookupSet::one(other)))
            .map_err(JitError::from)?;
        Ok(SymbolMap::default())
    }
}

fn deadlock() -> Failed {
    let jit = engine(0);
    for (symbol, other) in [("a", "b"), ("b", "c"), ("c", "a")] {
        jit.add_unit(Box::new(FnUnit::new([jit.intern(symbol)], needs(other)))).expect("new names");
    }
    error(jit.lookup("a"))
}

#[derive(Debug, thiserror::Error)]
#[error("line 3: `let` without a name")]
struct Syntax {
    source: std::num::ParseIntError,
}

fn unit_failed() -> Failed {
    let jit = engine(0);
    let unit = FnUnit::new([jit.intern("f")], |_| {
        "three".parse::<i32>().map(|_| SymbolMap::default()).map_err(|source| Syntax { source })
    });
    jit.add_unit(Box::new(unit.named(jit.intern("f.src")))).expect("a new name");
    error(jit.lookup("f"))
}

fn no_address() -> Failed {
    let jit = engine(0);
    let unit = FnUnit::new([jit.intern("f")], |_| Ok::<_, ResolveError>(SymbolMap::default()));
    jit.add_unit(Box::new(unit)).expect("a new name");
    error(jit.lookup("f"))
}

fn panicked() -> Failed {
    let jit = engine(0);
    let unit =
        FnUnit::new([jit.intern("f")], |request| request.addresses([]).map(|_| panic!("no such opcode")));
    jit.add_unit(Box::new(unit)).expect("a new name");
    error(jit.lookup("f"))
}

fn read() -> Failed {
    error(engine(0).add_file("/nonexistent/a.o"))
}

fn parse() -> Failed {
    error(engine(0).add_ir_text("bad.ll", "define i32 @f( {"))
}

fn duplicate() -> Failed {
    let jit = engine(0);
    let text = "define i32 @f() { ret i32 1 }";
    jit.add_ir_text("first.ll", text).expect("a new name");
    jit.lookup("f").expect("valid IR");
    error(jit.add_ir_text("second.ll", text))
}

fn transaction() -> Failed {
    let jit = engine(0);
    error(
        jit.session()
            .transaction()
            .remove(jit.main_dylib(), [jit.intern("f")])
            .commit()
            .map_err(|refused| refused.error),
    )
}

fn library() -> Failed {
    error(engine(0).load_library("/nonexistent/lib.so"))
}

struct Torn;

impl DefinitionGenerator for Torn {
    fn name(&self) -> &str {
        "plugins"
    }

    fn generate(&self, request: GenerateRequest) {
        request.finish(Err(shared_error("the index is torn")));
    }
}

fn generator() -> Failed {
    let jit = engine(0);
    jit.main_dylib().add_generator(Arc::new(Torn)).expect("the session is open");
    error(jit.lookup("missing"))
}
