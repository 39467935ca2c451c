//! The tasks that the README counts by lines. The same with other engines: `program-tests/programs/lines`.

use std::error::Error;
use std::thread;

use uruk::core::{MaterializationResponsibility, MaterializationUnit};
use uruk::pipeline::ir::IrLayer;
use uruk::pipeline::ir::ThreadSafeModule;
use uruk::prelude::*;

use crate::support::block_on;

type Done = Result<(), Box<dyn Error>>;

#[test]
fn hello() -> Done {
    // task: hello
    let jit = Jit::new()?;
    jit.add_ir_text("hello.ll", "define i64 @hello() { ret i64 42 }")?;
    // SAFETY: that is the function's signature.
    let hello = unsafe { jit.get::<extern "C" fn() -> i64>("hello")? };
    assert_eq!(hello(), 42);
    // end
    Ok(())
}

fn engine() -> Result<Jit, JitError> {
    let jit = Jit::builder().threads(1).build()?;
    let scale = "define double @scale(i64 %n, double %x) { %m = sitofp i64 %n to double %y = fmul double %m, %x ret double %y }";
    jit.add_ir_text("scale.ll", scale)?;
    Ok(jit)
}

#[test]
fn typed_call() -> Done {
    let jit = engine()?;
    // task: typed call
    // SAFETY: that is the function's signature.
    let scale = unsafe { jit.get::<extern "C" fn(i64, f64) -> f64>("scale")? };
    assert_eq!(scale(2, 1.5), 3.0);
    // end
    Ok(())
}

#[test]
fn own_unit() -> Done {
    use uruk::core::MaterializationInterface;
    use uruk::core::SymbolFlags;
    use uruk::core::sync::Arc;
    use uruk::pipeline::ir::IrCompileLayer;
    use uruk::pipeline::object::ObjectBuffer;

    let jit = engine()?;
    // task: own unit
    struct Made(SymbolName, Arc<IrCompileLayer>);
    impl MaterializationUnit for Made {
        fn name(&self) -> &str {
            "made"
        }
        fn interface(&self) -> MaterializationInterface {
            let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
            MaterializationInterface::new([(self.0.clone(), flags)].into_iter().collect())
        }
        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            let text = ObjectBuffer::new("made.ll", "define i64 @made() { ret i64 7 }");
            match ThreadSafeModule::parse(&text) {
                Ok(module) => self.1.emit(responsibility, module),
                Err(error) => responsibility.fail(Arc::new(error)),
            }
        }
        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
    }
    jit.add_unit(Box::new(Made(jit.intern("made"), jit.ir_layer().clone())))?;
    // SAFETY: that is the function's signature.
    let made = unsafe { jit.get::<extern "C" fn() -> i64>("made")? };
    assert_eq!(made(), 7);
    // end
    Ok(())
}

#[test]
fn asynchronous() -> Done {
    let jit = engine()?;
    // task: async
    // SAFETY: that is the function's signature.
    let scale = unsafe { jit.get_async::<extern "C" fn(i64, f64) -> f64>("scale") };
    let scale = block_on(scale)?;
    assert_eq!(scale(2, 1.5), 3.0);
    // end
    Ok(())
}

#[test]
fn unload() -> Done {
    let jit = engine()?;
    // task: unload
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker).add_ir_text("query.ll", "define i64 @query() { ret i64 1 }")?;
    // SAFETY: that is the function's signature.
    let query = unsafe { jit.get::<extern "C" fn() -> i64>("query")? };
    assert_eq!(query(), 1);
    drop(tracker);
    // end
    // The handle keeps the code, from any thread.
    assert_eq!(thread::spawn(move || query()).join().expect("the code is there"), 1);
    Ok(())
}

#[test]
fn plugin() -> Done {
    let jit = engine()?;
    // task: plugin
    let plugin = jit.create_dylib("plugin")?;
    plugin.link_to(&jit)?;
    let run = "declare double @scale(i64, double)
        define double @run() { %x = call double @scale(i64 3, double 2.0) ret double %x }";
    plugin.add_ir_text("plugin.ll", run)?;
    // SAFETY: the plugin has nothing that must not run.
    unsafe { plugin.initialize()? };
    // SAFETY: that is the function's signature.
    let run = unsafe { plugin.get::<extern "C" fn() -> f64>("run")? };
    assert_eq!(run(), 6.0);
    drop(run);
    jit.remove_dylib(&plugin)?.wait()?;
    // end
    Ok(())
}
