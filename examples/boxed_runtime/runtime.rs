//! The table of instances, the definitions of each world, and the times of compilation.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::PendingReclaim;
use uruk::core::sync::{Arc, Mutex};
use uruk::instances::{CodeInstanceState, CodeInstanceTable, CodeSignature, InstanceClaim, World};
use uruk::pipeline::invoke::{BoxedFn, InvokeApi, InvokeTrampolines};
use uruk::prelude::*;

use crate::methods::{self, FACTOR, Instance, Method};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Each method has one specialization here.
const ONLY: () = ();

/// A place of calls, and its cache while the world stays the same.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) factor: i64,
    pub(crate) instance: Arc<Instance>,
    /// How often it has called the interpreter.
    pub(crate) interpreted: u32,
}

/// `scale` from one world on.
#[derive(Clone)]
struct Definition {
    begins: World,
    factor: i64,
    /// A lazy function: it is compiled if compiled code calls it.
    symbol: String,
}

pub(crate) struct Runtime {
    pub(crate) jit: Jit,
    pub(crate) table: CodeInstanceTable<Method, (), ExecutorAddr>,
    bodies: Scope,
    /// The `invoke` of all pairs of `weigh`.
    invoke: ExecutorAddr,
    definitions: Mutex<Vec<Definition>>,
    /// The compiled code. Taking an entry out frees its code.
    code: Mutex<Vec<Compiled>>,
    /// How many instances redefinitions have ended. Its lock makes steps one after another.
    ended: Mutex<usize>,
    symbols: AtomicUsize,
}

struct Compiled {
    instance: Arc<Instance>,
    trackers: Vec<OwnedTracker>,
}

impl Runtime {
    pub(crate) fn new() -> Outcome<Self> {
        let jit = Jit::builder().threads(1).build()?;
        let bodies = jit.create_dylib("bodies")?;
        let table = CodeInstanceTable::new();
        let trampolines = InvokeTrampolines::new((**jit.object_layer()).clone());

        // `square` has one instance, which is the host's. Compiled code calls it by its types.
        let InstanceClaim::Compile(square) = table.claim(Method::Square, ONLY, table.world()) else {
            return Err("the table was empty".into());
        };
        let entry = ExecutorAddr::from_ptr(methods::square as BoxedFn as *const u8);
        square.instance().publish_invoke(entry).map_err(|_| "nobody else has it")?;
        let by_types = InvokeApi::Specialized(square.instance().clone());
        let (name, signature) = (jit.intern("square"), methods::signature_of_square());
        jit.add_unit(trampolines.unit(name, &signature, &by_types)?)?;
        drop(square);

        let (name, signature) = (jit.intern("invoke weigh"), methods::signature_of_weigh());
        jit.add_unit(trampolines.unit(name, &signature, &InvokeApi::Boxed)?)?;
        let invoke = jit.lookup("invoke weigh")?.address;
        let (definitions, code, ended, symbols) = Default::default();
        let runtime = Self { jit, table, bodies, invoke, definitions, code, ended, symbols };
        runtime.define(World::FIRST, 3)?;
        Ok(runtime)
    }

    /// Puts a definition of `scale` in place, for when the world begins.
    fn define(&self, begins: World, factor: i64) -> Outcome<()> {
        let symbol = format!("scale.{begins}");
        self.bodies.add_ir_text(&symbol, &methods::ir_of_scale(&symbol, factor))?;
        self.jit.add_lazy(&self.bodies, [&*symbol])?;
        self.definitions.lock().push(Definition { begins, factor, symbol });
        Ok(())
    }

    fn definition(&self, world: World) -> Outcome<Definition> {
        let definitions = self.definitions.lock();
        let found = definitions.iter().rfind(|definition| definition.begins <= world);
        Ok(found.ok_or("the first world has one")?.clone())
    }

    /// Finds the instance of `weigh` that is valid in the world, or makes one: the interpreter is there at once.
    pub(crate) fn site(&self, world: World) -> Outcome<Site> {
        let factor = self.definition(world)?.factor;
        FACTOR.set(factor);
        let instance = match self.table.claim(Method::Weigh, ONLY, world) {
            InstanceClaim::There(instance) => instance,
            InstanceClaim::Compile(compile) => {
                // If the world is over already, so is the validity of the instance. In this world it may be called all the same.
                let _ = compile.assume(Method::Scale, ONLY);
                let _ = compile.assume(Method::Square, ONLY);
                let interpreter = ExecutorAddr::from_ptr(methods::interpret_weigh as BoxedFn as *const u8);
                compile.instance().publish_invoke(interpreter).map_err(|_| "nobody else has it")?;
                compile.instance().clone()
            }
        };
        Ok(Site { world, factor, instance, interpreted: 0 })
    }

    /// Compiles the instance of a site. One thread does it.
    pub(crate) fn compile(&self, site: &Site) -> Outcome<()> {
        // Redefinitions wait. The code that they remove is compiled, so that guards keep it for threads that are inside.
        let _steps = self.ended.lock();
        // Else another thread was faster.
        let CodeInstanceState::InvokeOnly { .. } = site.instance.read() else { return Ok(()) };
        let definition = self.definition(site.world)?;
        let code = self.add_weigh(site, &definition.symbol, None)?;
        let published = site.instance.publish(self.invoke, code, CodeSignature::Specialized);
        published.map_err(|there| format!("one thread compiles it, and there is {there:?}").into())
    }

    /// Compiles the instance of a site again, with the code of `scale` in it.
    fn compile_better(&self, site: &Site) -> Outcome<()> {
        let CodeInstanceState::Specialized { .. } = site.instance.read() else { return Ok(()) };
        let definition = self.definition(site.world)?;
        let better = self.add_weigh(site, &definition.symbol, Some(definition.factor))?;
        site.instance.update(better).map_err(|there| format!("a pair stays, and there is {there:?}").into())
    }

    /// Adds code of `weigh`, which goes with the instance of the site.
    fn add_weigh(&self, site: &Site, scale: &str, inlined: Option<i64>) -> Outcome<ExecutorAddr> {
        // Relaxed: a number that only has to differ.
        let symbol = format!("weigh.{}", self.symbols.fetch_add(1, Ordering::Relaxed));
        let tracker = self.bodies.create_tracker();
        let text = methods::ir_of_weigh(&symbol, scale, inlined);
        self.jit.in_tracker(&tracker).add_ir_text(&symbol, &text)?;
        self.keep(site, tracker);
        Ok(self.bodies.lookup(&symbol)?.address)
    }

    fn keep(&self, site: &Site, tracker: OwnedTracker) {
        let mut code = self.code.lock();
        match code.iter_mut().find(|compiled| Arc::ptr_eq(&compiled.instance, &site.instance)) {
            Some(compiled) => compiled.trackers.push(tracker),
            // Its first code. If the instance has ended meanwhile, the code stays until the end.
            None => code.push(Compiled { instance: site.instance.clone(), trackers: vec![tracker] }),
        }
    }

    /// Redefines `scale`. Instances that contain its code are compiled again at their next call. Gives how many of them that
    /// ended.
    fn redefine(&self, factor: i64) -> Outcome<usize> {
        self.define(self.table.world().next(), factor)?;
        let redefinition = self.table.redefine([Method::Scale]);
        let gone = self.table.forget(redefinition.world);
        let is_gone = |compiled: &Compiled| gone.iter().any(|gone| Arc::ptr_eq(gone, &compiled.instance));
        let code: Vec<_> = self.code.lock().extract_if(.., |compiled| is_gone(compiled)).collect();
        // Removed. Threads that are still in an older world may run it until they have passed.
        drop(code);
        Ok(redefinition.ended.len())
    }

    /// Compiles the instance of a site better, or redefines `scale`, in turn.
    pub(crate) fn step(&self, number: u64, site: &Site) -> Outcome<()> {
        let mut ended = self.ended.lock();
        if number % 2 == 1 {
            return self.compile_better(site);
        }
        *ended += self.redefine(3 + number as i64)?;
        Ok(())
    }

    /// Removes all code, when the threads have left. Gives how many instances ended while they were there.
    pub(crate) fn finish(self) -> Outcome<usize> {
        self.code.lock().clear();
        let pending = self.jit.pending_reclaim();
        if pending != PendingReclaim::default() {
            return Err(format!("nobody is inside, and code waits: {pending:?}").into());
        }
        Ok(*self.ended.lock())
    }
}
