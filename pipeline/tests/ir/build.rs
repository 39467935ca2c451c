//! Modules that are built with inkwell, in a context that is lent.

use std::error::Error;

use uruk_pipeline::ir::inkwell::AddressSpace;
use uruk_pipeline::ir::{CompileError, ThreadSafeContext, ThreadSafeModule};

type Failed = Box<dyn Error + Send + Sync>;

fn answer() -> Result<ThreadSafeModule, Failed> {
    ThreadSafeModule::build("answer.k", |context| {
        let module = context.create_module("whatever inkwell is told");
        let int = context.i32_type();
        let function = module.add_function("answer", int.fn_type(&[], false), None);
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(function, "entry"));
        builder.build_return(Some(&int.const_int(42, false)))?;
        // Values that are left in the context go with the closure's values.
        let _left =
            context.create_module("left").add_global(context.ptr_type(AddressSpace::default()), None, "x");
        Ok(module)
    })
}

#[test]
fn what_was_built_is_called_as_it_is_told_and_moves_between_threads() {
    let module = answer().expect("a module");
    assert_eq!(&**module.name(), "answer.k");
    let text = std::thread::spawn(move || module.with_module(|module| module.print_to_string().to_string()));
    let text = text.join().expect("no panic").expect("a sound context");
    assert!(text.contains("ModuleID = 'answer.k'") && text.contains("ret i32 42"), "{text}");
    assert!(!ThreadSafeContext::held_by_current_thread());
}

#[test]
fn what_the_closure_fails_with_comes_back_and_the_context_is_free() {
    let error = ThreadSafeModule::build::<Failed>("bad.k", |_| Err("line 3: no such name".into()));
    assert_eq!(error.expect_err("it fails").to_string(), "line 3: no such name");
    assert!(!ThreadSafeContext::held_by_current_thread());
}

#[test]
fn the_closure_holds_the_context() {
    let built = ThreadSafeModule::build::<CompileError>("asm.k", |context| {
        let module = context.create_module("asm");
        let (void, held) = (context.void_type(), ThreadSafeContext::held_by_current_thread());
        assert!(held, "a lookup here would be refused");
        module.add_function("f", void.fn_type(&[], false), None);
        Ok(module)
    });
    // The build reports no error; the caller runs the verifier.
    built.expect("a module").verify().expect("a declaration is valid");
}
