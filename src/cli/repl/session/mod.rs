//! A Kaleidoscope program that runs while it is written: how the engine is used.
//!
//! ```text
//!   dylib main      f: a stub, whose address never changes         ◀── every call of `f`, from wherever
//!   dylib bodies    f$1, f$2, …: units of trees, each with a tracker of its own
//!                   $expression: the expression that runs, compiled at once and removed when it has run
//!   dylib host      putchard, printd: functions of this program; the limit of `stop.rs`
//! ```
//!
//! A definition makes no IR. Its unit does, when the function is first called, on the thread that calls it. Plain names in bodies mean the
//! stubs of `main`, because the link order of `bodies` begins there. A function that is defined anew gets another body.
//!
//! No name of the language has a `$` in it, so bodies collide with nothing.
//!
//! **Holds.** Code of the program runs while [`Session::evaluate`] does, on that thread alone. So between two items no old body is in use.
//!
//! It is shared with `examples/kaleidoscope`, and the command's editor and its words know nothing of the engine.

mod evaluate;
mod inspect;
mod stop;
mod unit;

use std::collections::BTreeMap;
use std::fmt;

use uruk::core::sync::Arc;
use uruk::core::sync::atomic::AtomicUsize;
use uruk::core::{ExecutorAddr, ExecutorSymbolDef, OwnedTracker, SymbolFlags, SymbolName, absolute_symbols};
use uruk::pipeline::ir::{CompileError, OptimizationLevel};
use uruk::{Jit, JitError, Scope};
use uruk_kaleidoscope::{
    Callee, Definition, Diagnostic, Item, LowerError, Operators, Prototype, STOP_LIMIT, STOP_NOTE,
    STOP_STATE, Source, parse,
};

pub(crate) use evaluate::Value;
use stop::Stop;
use unit::{Body, Program};

/// A function of the host for programs: each takes a number and answers one.
pub(crate) type HostFunction = (&'static str, extern "C" fn(f64) -> f64);

/// Told of each body when its IR is made, on the thread that makes it.
pub(crate) type OnLowered = Arc<dyn Fn(&str) + Send + Sync>;

/// A program, as far as it has been written.
pub(crate) struct Session {
    /// Goes before the engine does.
    functions: BTreeMap<String, ReplFunction>,
    jit: Jit,
    level: OptimizationLevel,
    bodies: Scope,
    program: Arc<Program>,
    stop: Arc<Stop>,
    /// No frame may lie below this address while nothing is stopped.
    stack_limit: usize,
    operators: Operators,
    host: Vec<&'static str>,
}

/// A function of the program.
struct ReplFunction {
    definition: Arc<Definition>,
    /// How many bodies it has had.
    generation: u64,
    /// Of its body.
    tracker: OwnedTracker,
}

/// The outcome of an item.
pub(crate) enum Outcome {
    /// A function was defined; which of its bodies this is, counted from one.
    Defined {
        /// The function.
        name: String,
        /// One if it is new.
        generation: u64,
    },
    /// A function of the process was declared.
    Declared,
    /// An expression was run.
    Value(Value),
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The program is wrong.
    #[error(transparent)]
    Wrong(#[from] Diagnostic),
    /// LLVM refused a function.
    #[error("cannot make IR")]
    Lower(#[source] LowerError),
    /// The engine refused it.
    #[error(transparent)]
    Jit(#[from] JitError),
    /// LLVM refused it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// [`Session::limit`] was raised while it ran.
    #[error(transparent)]
    Interrupted(Diagnostic),
    /// The stack was nearly full.
    #[error(transparent)]
    StackFull(Diagnostic),
    /// A function could not be had when it was called; the engine's words.
    #[error("{0}")]
    Call(String),
}

impl From<LowerError> for SessionError {
    fn from(error: LowerError) -> Self {
        match error {
            LowerError::Wrong(diagnostic) => Self::Wrong(diagnostic),
            error => Self::Lower(error),
        }
    }
}

impl Session {
    /// A program without functions, compiled at this level on this thread. It may call functions of `host`, and those of the process that
    /// it declares.
    pub(crate) fn new(level: OptimizationLevel, host: &[HostFunction]) -> Result<Self, SessionError> {
        Self::observed(level, host, 0, Arc::new(|_| {}))
    }

    /// The same with `threads` that compile, and an observer.
    pub(crate) fn observed(
        level: OptimizationLevel,
        host: &[HostFunction],
        threads: usize,
        on_lowered: OnLowered,
    ) -> Result<Self, SessionError> {
        let program = Arc::new(Program::new(on_lowered));
        let told = program.clone();
        let jit = Jit::builder()
            .threads(threads)
            .optimization(level)
            .on_lazy_failure(move |failure| told.call_failed(failure))
            .build()?;
        let (bodies, functions) = (jit.create_dylib("bodies")?, jit.create_dylib("host")?);
        bodies.link_to(&jit)?;
        bodies.link_to(&functions)?;
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let define = |(name, function): &HostFunction| {
            let address = ExecutorAddr::from_ptr(*function as *const ());
            (jit.intern(name), ExecutorSymbolDef { address, flags })
        };
        let stop = Arc::new(Stop::new());
        let symbols = host.iter().map(define).chain(symbols_of_stop(&jit, &stop));
        functions.dylib().define(absolute_symbols(symbols.collect())).map_err(JitError::from)?;
        for (name, _) in host {
            program.declare(name, Callee::Extern { parameters: 1, is_missing: false });
        }
        let (operators, host) = (Operators::new(), host.iter().map(|(name, _)| *name).collect());
        let (functions, stack_limit) = (BTreeMap::new(), 0);
        Ok(Self { functions, jit, level, bodies, program, stop, stack_limit, operators, host })
    }

    /// Lets no frame of the program lie below an address. There has to be room below it for the functions that the program calls, and for
    /// compiling one.
    pub(crate) fn set_stack_limit(&mut self, address: usize) {
        self.stack_limit = address;
        self.forget_stop();
    }

    /// A limit that stops what runs.
    pub(crate) const EVERYTHING: usize = stop::EVERYTHING;

    /// The limit that code of the program looks at. [`Self::EVERYTHING`] in it stops what runs, from any thread or signal handler.
    pub(crate) fn limit(&self) -> &Arc<AtomicUsize> {
        &self.stop.limit
    }

    /// Lets the next expression run, also if the last one was to be stopped.
    pub(crate) fn forget_stop(&mut self) {
        self.stop.set_limit(self.stack_limit);
    }

    /// Whether something is called by this name.
    pub(crate) fn is_callable(&self, name: &str) -> bool {
        self.program.functions().contains_key(name)
    }

    /// The items of a text, if it were said now. Nothing is done.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn parse(&self, source: &Arc<Source>) -> Result<Vec<Item>, Diagnostic> {
        parse(source, &mut self.operators.clone())
    }

    /// Does what an item says.
    ///
    /// # Errors
    /// [`SessionError`]. Earlier definitions stay as they were.
    pub(crate) fn run(&mut self, item: Item) -> Result<Outcome, SessionError> {
        match item {
            Item::Definition(definition) => self.define(&definition),
            Item::Extern(prototype) => self.declare(&prototype).map(|()| Outcome::Declared),
            Item::Expression(definition) => self.evaluate(&definition).map(Outcome::Value),
        }
    }

    fn define(&mut self, definition: &Arc<Definition>) -> Result<Outcome, SessionError> {
        let prototype = &definition.prototype;
        let name = prototype.name.clone();
        let generation = self.give_body(definition)?;
        self.operators.add(prototype);
        self.change(&name, Callee::Defined { parameters: prototype.parameters.len() })?;
        Ok(Outcome::Defined { name, generation })
    }

    fn declare(&mut self, prototype: &Prototype) -> Result<(), SessionError> {
        let (name, parameters) = (&prototype.name, prototype.parameters.len());
        // As in the tutorial, a function of the program may be declared as well.
        if self.functions.contains_key(name) {
            return Ok(());
        }
        let is_known = self.host.contains(&&**name) || self.jit.process_symbols().lookup(name).is_some();
        self.change(name, Callee::Extern { parameters, is_missing: !is_known })
    }

    /// Notes what a name stands for from now on. Code that was made of calls to something else is made again when it is called.
    fn change(&mut self, name: &str, callee: Callee) -> Result<(), SessionError> {
        let before = self.program.declare(name, callee);
        if before.is_some_and(|before| before != callee) {
            let calls = |function: &&ReplFunction| function.definition.calls.contains(name);
            let callers: Vec<_> =
                self.functions.values().filter(calls).map(|it| it.definition.clone()).collect();
            for caller in callers {
                self.give_body(&caller)?;
            }
        }
        Ok(())
    }

    /// Gives a function its next body, which calls reach from now on; which it is.
    fn give_body(&mut self, definition: &Arc<Definition>) -> Result<u64, SessionError> {
        let name = &*definition.prototype.name;
        let generation = self.functions.get(name).map_or(1, |function| function.generation + 1);
        let body = body_name(name, generation);
        let tracker = self.bodies.create_tracker();
        self.add(&body, definition, &tracker)?;
        if generation == 1 {
            self.jit.add_lazy(&self.bodies, [(name, &*body)])?;
        } else {
            self.jit.redefine_lazily(&self.bodies, [(name, &*body)])?;
        }
        let function = ReplFunction { definition: definition.clone(), generation, tracker };
        if let Some(before) = self.functions.insert(name.to_owned(), function) {
            before.tracker.remove().map_err(|error| SessionError::Call(error.to_string()))?;
        }
        Ok(generation)
    }

    /// Defines a body, which is a tree until it is looked for.
    fn add(
        &self,
        symbol: &str,
        definition: &Arc<Definition>,
        tracker: &OwnedTracker,
    ) -> Result<(), SessionError> {
        let (symbol, layer) = (self.jit.intern(symbol), self.jit.ir_layer().clone());
        let body = Body { symbol, definition: definition.clone(), program: self.program.clone(), layer };
        Ok(self.bodies.dylib().define_with_tracker(Box::new(body), tracker).map_err(JitError::from)?)
    }

    /// The operators that there are now.
    pub(crate) fn operators(&self) -> &Operators {
        &self.operators
    }

    /// The engine, for who wants to look at it.
    pub(crate) fn jit(&self) -> &Jit {
        &self.jit
    }
}

/// The functions by which code of the program asks whether it is stopped. Their addresses are good as long as there is a session, which
/// has a part in both.
fn symbols_of_stop(jit: &Jit, stop: &Arc<Stop>) -> [(SymbolName, ExecutorSymbolDef); 3] {
    let symbol = |name, address, flags| {
        (jit.intern(name), ExecutorSymbolDef { address, flags: SymbolFlags::EXPORTED | flags })
    };
    let note = stop::stopped as extern "C" fn(&Stop, usize, u64);
    [
        symbol(STOP_LIMIT, ExecutorAddr::from_ptr(Arc::as_ptr(&stop.limit)), SymbolFlags::default()),
        symbol(STOP_STATE, ExecutorAddr::from_ptr(Arc::as_ptr(stop)), SymbolFlags::default()),
        symbol(STOP_NOTE, ExecutorAddr::from_ptr(note as *const ()), SymbolFlags::CALLABLE),
    ]
}

fn body_name(function: &str, generation: u64) -> String {
    format!("{function}${generation}")
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("functions", &self.functions.keys()).finish_non_exhaustive()
    }
}
