//! Definition generators: definitions made when a lookup misses them.

use std::fmt;
use std::marker::PhantomData;

use crate::error::cut_short;
use crate::ids::SessionTag;
use crate::ids::{self, QueryId};
use crate::protocol::state::RuledOut;
use crate::session::holding::{Held, Hold};
use crate::shared_error;
use crate::{
    ExecutionSession, JitDylib, JitDylibLookupFlags, LookupKind, LookupSet, SharedError, SymbolName,
};

/// A generator that was added to a dylib of one session: no other session takes it for one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GeneratorId {
    pub(crate) id: ids::GeneratorId,
    pub(crate) session: SessionTag,
}

/// Adds definitions to a dylib when a lookup finds that they are missing.
///
/// # Concurrency
/// Asked about one lookup at a time: others that miss symbols queue until the request is finished. No
/// lock is held; the generator may define units, look symbols up, and finish the request later from any
/// thread. A lookup inside `generate` that waits for symbols this generator would have to provide is told
/// [`WouldDeadlock`](crate::LookupError::WouldDeadlock).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::{DefinitionGenerator, ExecutionSession, ExecutorAddr, FnUnit, GenerateRequest, LookupRequest, LookupSet, shared_error};
///
/// /// Defines symbols that begin with `make_`.
/// struct Maker;
///
/// impl DefinitionGenerator for Maker {
///     fn name(&self) -> &str {
///         "maker"
///     }
///
///     fn generate(&self, request: GenerateRequest) {
///         let names = request.symbols().iter().map(|(name, _)| name.clone());
///         let mut defined = Ok(());
///         for name in names.filter(|name| name.as_str().starts_with("make_")) {
///             let symbol = name.clone();
///             let unit = FnUnit::new([name], move |request| {
///                 request.addresses([(symbol.as_str(), ExecutorAddr::new(0x1000))])
///             });
///             defined = defined.and(request.dylib().define(Box::new(unit)));
///         }
///         request.finish(defined.map_err(shared_error));
///     }
/// }
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// main.add_generator(Arc::new(Maker));
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(session.intern("make_tea")))).is_ok());
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(session.intern("tea")))).is_err());
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
///
/// ORC: `DefinitionGenerator::tryToGenerate`.
pub trait DefinitionGenerator: Send + Sync {
    /// The generator's name in errors and traces.
    fn name(&self) -> &str;

    /// Defines what it can of `request.symbols()` in `request.dylib()`, then finishes the request.
    ///
    /// Symbols it does not know are left alone: the lookup goes on to the next generator or dylib.
    fn generate(&self, request: GenerateRequest);

    /// Sentences about a symbol, for who asks [why](ExecutionSession::why) it stands where it does: from where its code came, or why it did
    /// not come from there. `unit` is the unit that provides it in `dylib`, if one does.
    ///
    /// # Concurrency
    /// Called on the thread that asks, at any moment, without a lock.
    fn about(&self, dylib: &JitDylib, symbol: &SymbolName, unit: Option<&SymbolName>) -> Option<Box<str>> {
        let _ = (dylib, symbol, unit);
        None
    }
}

/// A suspended lookup asking one generator. Dropping it unfinished fails the lookup.
///
/// Not `Send`: it belongs to the thread and the frame that generate until it is [detached](GenerateRequest::detach), so
/// that a lookup in `generate` that would wait for the very same generator is an error and not a hang.
///
/// # Concurrency
/// Finishing or dropping it takes the session's lock for a moment and does not wait. The lookup goes on, and the generator is asked about
/// the next lookup in its queue.
///
/// ORC: `LookupState`.
pub struct GenerateRequest {
    asked: Asked,
    /// Its place in the list of what this thread alone can finish.
    hold: Option<Hold>,
    not_send: PhantomData<*mut ()>,
}

/// A generator's request on its way to another thread, or parked. Dropping it fails the lookup.
pub struct DetachedRequest(Asked);

/// The question to a generator.
pub(crate) struct Asked {
    pub(crate) dylib: JitDylib,
    pub(crate) query: QueryId,
    pub(crate) generator: ids::GeneratorId,
    pub(crate) kind: LookupKind,
    pub(crate) lookup_flags: JitDylibLookupFlags,
    pub(crate) symbols: LookupSet,
    pub(crate) ruled_out: RuledOut,
    pub(crate) finished: bool,
}

impl GenerateRequest {
    /// The session of the lookup.
    pub fn session(&self) -> &ExecutionSession {
        self.asked.dylib.session()
    }

    /// The dylib that misses the symbols.
    pub fn dylib(&self) -> &JitDylib {
        &self.asked.dylib
    }

    /// On whose behalf the lookup runs.
    pub fn kind(&self) -> LookupKind {
        self.asked.kind
    }

    /// Which definitions of the dylib the lookup may see.
    pub fn lookup_flags(&self) -> JitDylibLookupFlags {
        self.asked.lookup_flags
    }

    /// The symbols the dylib does not define.
    pub fn symbols(&self) -> &LookupSet {
        &self.asked.symbols
    }

    /// The suspended lookup.
    pub(crate) fn query(&self) -> QueryId {
        self.asked.query
    }

    /// Says that the generator `lacks` some of the symbols, whatever kind of lookup asks for them. It is not asked for these again before
    /// [`generators_changed`](ExecutionSession::generators_changed) is called.
    ///
    /// So a generator that reads a fixed table makes the next lookup in vain cheap. A definition that comes from elsewhere is found all
    /// the same.
    ///
    /// # Concurrency
    /// Counts from when the request is finished. It counts for nothing if `generators_changed` was called after the request began.
    ///
    /// # Cost
    /// The session remembers up to a few thousand such names for each generator.
    pub fn rule_out(&mut self, lacks: impl Fn(&SymbolName) -> bool) {
        let Asked { symbols, ruled_out, .. } = &mut self.asked;
        let names = symbols.iter().map(|(name, _)| name);
        ruled_out.symbols.extend(names.filter(|name| lacks(name)).cloned());
    }

    /// Lets the lookup go on, or fails it with the error. A long chain of errors is cut short, as where
    /// [a responsibility fails](crate::MaterializationResponsibility::fail).
    pub fn finish(mut self, outcome: Result<(), SharedError>) {
        // Runs code of the embedder, which may block: as long as it runs, no other thread can finish the request. Should it panic,
        // the request is not finished yet.
        let outcome = outcome.map_err(cut_short);
        self.give_back();
        self.asked.conclude(outcome);
    }

    /// Lets the request leave this thread.
    pub fn detach(mut self) -> DetachedRequest {
        self.hold.take().into_iter().for_each(Hold::pass_on);
        DetachedRequest(self.asked.move_out())
    }

    /// Lets the generator be asked for other lookups before this one is finished.
    pub(crate) fn let_others_in(&self) {
        let Asked { generator, query, .. } = self.asked;
        self.session().transact(|state, effects| state.serve_apart(generator, query, effects));
    }

    /// Has others wait again, if the generator has not begun with one of them.
    pub(crate) fn keep_others_out(&self) {
        let Asked { generator, query, .. } = self.asked;
        self.session().transact(|state, _| state.serve_alone(generator, query));
    }

    fn give_back(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.give_back();
        }
    }
}

impl DetachedRequest {
    pub(crate) fn new(asked: Asked) -> Self {
        Self(asked)
    }

    /// Takes the request up on this thread.
    pub fn attach(mut self) -> GenerateRequest {
        let asked = self.0.move_out();
        let hold = Hold::take(asked.dylib.session(), Held::Request(asked.query));
        GenerateRequest { asked, hold, not_send: PhantomData }
    }
}

impl Asked {
    /// The request itself, leaving a finished husk behind.
    fn move_out(&mut self) -> Self {
        let finished = std::mem::replace(&mut self.finished, true);
        let (dylib, symbols) = (self.dylib.clone(), std::mem::take(&mut self.symbols));
        let ruled_out = std::mem::take(&mut self.ruled_out);
        let Self { query, generator, kind, lookup_flags, .. } = *self;
        Self { dylib, query, generator, kind, lookup_flags, symbols, ruled_out, finished }
    }

    /// With an error that is short.
    fn conclude(&mut self, outcome: Result<(), SharedError>) {
        if !self.finished {
            self.finished = true;
            let (id, query, ruled_out) = (self.generator, self.query, std::mem::take(&mut self.ruled_out));
            let forgotten = self.dylib.session().transact(|state, effects| {
                let forgotten = state.rule_out(id, ruled_out);
                state.generated(id, query, outcome, effects);
                forgotten
            });
            drop(forgotten);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.finished {
            let reason =
                if std::thread::panicking() { "it panicked" } else { "it dropped the request unfinished" };
            self.conclude(Err(shared_error(reason)));
        }
    }
}

impl Drop for GenerateRequest {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for GenerateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateRequest")
            .field("dylib", &self.asked.dylib.name())
            .field("kind", &self.asked.kind)
            .field("symbols", &self.asked.symbols)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DetachedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedRequest")
            .field("dylib", &self.0.dylib.name())
            .field("symbols", &self.0.symbols)
            .finish_non_exhaustive()
    }
}
