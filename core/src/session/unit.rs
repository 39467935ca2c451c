//! Materialization units: how symbols come to be.

use crate::{
    JitDylib, MaterializationResponsibility, SerialQueue, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName,
    TaskPriority,
};

/// Provides the definitions of a fixed set of symbols, all at once, when the first of them is looked up.
///
/// # Concurrency
/// A unit is owned by one place at a time: its dylib until it is claimed, then the task that
/// materializes it. `materialize` starts at most once. No lock is held around any of these methods.
///
/// # Examples
/// [`FnUnit`](crate::FnUnit) is shorter where a function will do.
/// ```
/// use uruk_core::{
///     ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface,
///     MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolName,
/// };
///
/// struct Constant(SymbolName);
///
/// impl MaterializationUnit for Constant {
///     fn name(&self) -> &str {
///         "constant"
///     }
///
///     fn interface(&self) -> MaterializationInterface {
///         MaterializationInterface::new([(self.0.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
///     }
///
///     fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
///         let here = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
///         let addresses = [(self.0, here)].into_iter().collect();
///         // A refusal has failed the symbol and all lookups that wait for it.
///         let _ = responsibility.complete(&addresses, Vec::new());
///     }
///
///     fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
/// }
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let pi = session.intern("pi");
/// main.define(Box::new(Constant(pi.clone())))?;
/// assert!(session.lookup_symbol(&main.link_order(), &pi).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `MaterializationUnit`.
#[doc(alias = "MU")]
pub trait MaterializationUnit: Send {
    /// The unit's name in errors, events and traces.
    fn name(&self) -> &str;

    /// The symbols the unit will define. Asked once, when the unit is defined.
    fn interface(&self) -> MaterializationInterface;

    /// The addresses of the unit's symbols, for a unit that has nothing else to do.
    ///
    /// Asked first when the unit is defined by [`JitDylib::define`] or [`JitDylib::define_with_tracker`]. A unit that answers is
    /// dropped: its symbols are defined under its name at these addresses. Each becomes Ready when it is first looked up, by
    /// itself, without a task. Nothing but its name is asked for then: [`interface`](Self::interface),
    /// [`discard`](Self::discard) and [`materialize`](Self::materialize) are not called.
    ///
    /// Not asked in a [`Transaction`](crate::Transaction), which may have to give the unit back whole, nor of a unit that takes the
    /// place of another ([`replace`](crate::MaterializationResponsibility::replace)), whose symbols are claimed already: there it is
    /// described, claimed and materialized as any other.
    fn known_addresses(&mut self) -> Option<SymbolMap> {
        None
    }

    /// How urgent the unit is for lookups that do not say how urgent they are, do not block a thread and are made on no
    /// unit's behalf ([`LookupRequest::priority`](crate::LookupRequest::priority)). Asked once, when the unit is defined.
    ///
    /// Neither a floor nor a ceiling: the unit's task is as urgent as the most urgent lookup that has needed it, directly or
    /// through other units, since it was claimed.
    fn priority(&self) -> TaskPriority {
        TaskPriority::Demanded
    }

    /// The queue of units that must not run at the same time as this one. Asked once, when the unit is defined.
    ///
    /// The unit waits there, on no worker, until no other of the queue runs, and may
    /// [leave](SerialQueue::leave) before it ends.
    fn serial_queue(&self) -> Option<SerialQueue> {
        None
    }

    /// Whether [`materialize`](Self::materialize) never blocks: a blocking lookup inside it, or any other wait that the session
    /// sees, is then refused with [`WaitError::Leaf`](crate::WaitError::Leaf). Asked once, when the unit is defined.
    fn is_leaf(&self) -> bool {
        false
    }

    /// Makes the symbols, then says so through `responsibility`; may keep it and return before that.
    ///
    /// A panic fails the symbols with the panic's message.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility);

    /// Another unit for the same symbols, which makes them once more if they fail. None if that cannot be had cheaply.
    ///
    /// Asked just before [`materialize`](Self::materialize), after each [`discard`](Self::discard). The session keeps the spare until a
    /// symbol of the unit is Ready, or all are removed. It becomes a definition of the symbols that have failed when
    ///
    /// - one of them is looked up that failed for the want of another symbol, and a definition of that may have come;
    /// - [`ExecutionSession::retry`](crate::ExecutionSession::retry) names it.
    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        None
    }

    /// Another definition of `symbol` has won: the unit need not define it any more.
    ///
    /// Called before `materialize`, or before the unit is dropped if nothing of it is left. After a panic the unit still hears of its
    /// other losses. It is dropped then, and if something of it is left that fails with the panic's message; what else panics,
    /// or all of it where nothing is left to fail, goes to the session's error reporter.
    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName);
}

/// The symbols a unit promises.
///
/// ORC: `MaterializationUnit::Interface`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaterializationInterface {
    /// Each symbol and what it is.
    pub symbols: SymbolFlagsMap,
    /// The symbol that stands for the unit's static initialisers. Looking it up runs the unit; it has no
    /// address unless `symbols` lists it as one that does.
    pub initializer: Option<SymbolName>,
}

impl MaterializationInterface {
    /// An interface without initialisers.
    pub fn new(symbols: SymbolFlagsMap) -> Self {
        Self { symbols, initializer: None }
    }

    /// Adds the symbol that stands for the unit's initialisers.
    #[must_use]
    pub fn with_initializer(mut self, initializer: SymbolName) -> Self {
        if !self.symbols.contains_key(&initializer) {
            self.symbols.insert(initializer.clone(), SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        }
        self.initializer = Some(initializer);
        self
    }
}
