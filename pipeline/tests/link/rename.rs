//! Names that are unique within an object only become global when it is linked. A counter in them would make each object
//! another one in each process.

use std::sync::Arc;

use crate::function_unit::function_unit;
use crate::link_support::*;
use uruk_core::{ExecutionSession, ExecutorAddr};
use uruk_pipeline::link::{LinkError, LinkOptions, elf};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

/// Links `source` with `old` names called `new`.
fn link_renamed(source: &str, names: &[(&str, &str)], externals: &Externals) -> Result<Program, LinkError> {
    let object = compile(CC, "c", source, &["-fPIC"]);
    let rename = |name: &str| names.iter().find(|(old, _)| *old == name).map(|(_, new)| Box::from(*new));
    let options = LinkOptions { rename: Some(&rename), ..LinkOptions::default() };
    link_graph(elf::parse("renamed.o", &object)?, externals, &options)
}

#[test]
fn definitions_and_references_have_the_names_of_the_program() {
    let source = "extern unsigned long other(void); unsigned long body(void) { return 7; }
                  unsigned long caller(void) { return body() + other(); }";
    let other = link_renamed("unsigned long f(void) { return 5; }", &[], &Externals::new()).expect("links");
    let externals = Externals::from([("g of 2".to_owned(), other.definitions["f"])]);
    let names = [("body", "f of 1"), ("other", "g of 2")];
    let program = link_renamed(source, &names, &externals).expect("nothing is missing");
    assert_eq!(program.call("caller"), 12);
    assert_eq!(program.call("f of 1"), 7);
    assert!(!program.definitions.contains_key("body"));
}

#[test]
fn two_names_may_be_exchanged() {
    let source = "unsigned long f(void) { return 1; } unsigned long g(void) { return 2; }
                  unsigned long both(void) { return f() * 10 + g(); }";
    let program = link_renamed(source, &[("f", "g"), ("g", "f")], &Externals::new()).expect("links");
    assert_eq!([program.call("f"), program.call("g"), program.call("both")], [2, 1, 12]);
}

#[test]
fn a_reference_meets_the_definition_that_has_its_name_now() {
    let source = "extern unsigned long f(void); unsigned long body(void) { return 9; }
                  unsigned long run(void) { return f(); }";
    let program = link_renamed(source, &[("body", "f")], &Externals::new()).expect("`f` is here");
    assert_eq!(program.call("run"), 9);
}

#[test]
fn two_definitions_of_one_name_are_refused() {
    let source = "int f(void) { return 1; } int g(void) { return 2; }";
    let refused =
        link_renamed(source, &[("f", "h"), ("g", "h")], &Externals::new()).err().expect("a duplicate");
    assert!(matches!(&refused, LinkError::Duplicate { symbol, .. } if &**symbol == "h"), "{refused}");
}

#[test]
fn local_names_and_those_of_the_linker_stay() {
    let source =
        "static unsigned long count; extern char __dso_handle; void *who(void) { return &__dso_handle; }
                  unsigned long next(void) { return ++count; }";
    let names = [("count", "nothing"), ("__dso_handle", "nothing")];
    let program = link_renamed(source, &names, &Externals::new()).expect("nothing is missing");
    assert_eq!([program.call("next"), program.call("next")], [1, 2]);
}

/// A function that was compiled once, each time with its own idea of what it refers to.
#[test]
fn one_object_is_linked_under_several_names() {
    let source = "extern unsigned long next(void); __attribute__((weak)) extern int is_last;
                  unsigned long body(void) { return &is_last ? 1 : next() + 1; }";
    let object = compile(CC, "c", source, &["-fPIC"]);
    let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
    let layer = ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new()));
    let layer = Arc::new(layer.with_rename(|responsibility, name| {
        let promised = responsibility.symbols().keys().next().expect("one name");
        let number: u32 =
            promised.as_str().strip_prefix("f#").and_then(|number| number.parse().ok()).expect("f#");
        match name {
            "body" => Some(promised.as_str().into()),
            "next" => Some(format!("f#{}", (number + 1).min(3)).into()),
            "is_last" if number == 3 => Some("f#3".into()),
            _ => None,
        }
    }));
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    for number in 1..=3 {
        let name = session.intern(&format!("f#{number}"));
        let (layer, object) = (layer.clone(), ObjectBuffer::new("instance.o", object.clone()));
        let unit = function_unit(name, move |responsibility| layer.emit(responsibility, object));
        main.define(unit).expect("a new name");
    }
    let call = |name: &str| {
        let found = session.lookup_symbol(&main.link_order(), &session.intern(name)).expect("links");
        let address: ExecutorAddr = found.address;
        // SAFETY: the object's function is of this type, and the session lives.
        let function: extern "C" fn() -> u64 = unsafe { std::mem::transmute(address.value() as usize) };
        function()
    };
    assert_eq!([call("f#1"), call("f#2"), call("f#3")], [3, 2, 1]);
    let answer = session.lookup_symbol(&main.link_order(), &session.intern("body"));
    answer.expect_err("the name of the object is nobody's in the program");
}
