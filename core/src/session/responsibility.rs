//! Responsibilities: the duty to resolve and emit a unit's symbols, or to fail them.
//!
//! Two types for two steps: a [`MaterializationResponsibility`] can only be resolved, which gives a
//! [`ResolvedResponsibility`], which can only be emitted. Either may be failed, and dropping one fails its
//! symbols, so no way out of a unit leaves a query waiting.
//!
//! ```compile_fail
//! # fn emits_before_resolving(responsibility: uruk_core::MaterializationResponsibility) {
//! responsibility.notify_emitted(Vec::new());
//! # }
//! ```
//!
//! ```compile_fail
//! # fn emits_twice(responsibility: uruk_core::ResolvedResponsibility) {
//! let _ = responsibility.notify_emitted(Vec::new());
//! let _ = responsibility.notify_emitted(Vec::new());
//! # }
//! ```
//!
//! ```compile_fail
//! # fn leaves_the_thread_undeclared(responsibility: uruk_core::MaterializationResponsibility) {
//! std::thread::spawn(move || drop(responsibility));
//! # }
//! ```

mod complete;
mod duty;

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use crate::ids::Id;
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::tracker::Defunct;
use crate::protocol::state::effects::Effects;
use crate::session::Live;
use crate::session::resource::Registered;
use crate::{
    DefineError, DelegateError, DependenceGroup, Dependency, EmitError, ExecutionSession, FailureCause,
    JitDylib, MaterializationUnit, ResolveError, Resource, SharedError, SymbolFlagsMap, SymbolMap,
    SymbolName, TrackerError, in_span,
};

pub(crate) use duty::Duty;

/// The duty to give each symbol of a claimed unit an address.
///
/// Not `Send`: until it is [detached] it belongs to the thread and the frame that materialize the unit. To outlive
/// its frame, in a thread-local say, it must be detached too. A blocking lookup that waits for symbols its own thread
/// must provide, or waits in a cycle, fails with [`WouldDeadlock`](crate::LookupError::WouldDeadlock).
///
/// [detached]: MaterializationResponsibility::detach
///
/// # Concurrency
/// Methods that change symbols take the session's lock for a moment and do not wait; so does dropping it, which fails the symbols. The
/// effects are delivered before the call returns, and run elsewhere, or in place after the unit.
///
/// # Cost
/// Linear in the symbols, during one hold of the lock, unless said otherwise. Effects that spread, such as a failure, go in slices of about
/// a thousand steps.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet, MaterializationResponsibility, SymbolMap, shared_error};
///
/// /// A compiler whose code refers to `needs`: address first, so that others can refer to it, then the code.
/// fn compile(duty: MaterializationResponsibility, here: SymbolMap, needs: LookupSet) {
///     let Ok(duty) = duty.notify_resolved(&here).map_err(|refused| refused.fail()) else { return };
///     match duty.session().lookup(LookupRequest::new(duty.dylib().link_order(), needs).until_resolved()) {
///         // The code is written and in place now. A refusal has failed the symbols.
///         Ok(found) => drop(duty.complete(found.dependencies())),
///         Err(error) => duty.fail(shared_error(error)),
///     }
/// }
/// ```
///
/// ORC: `MaterializationResponsibility`, its first half.
#[derive(Debug)]
pub struct MaterializationResponsibility {
    duty: Box<Duty>,
    not_send: PhantomData<*mut ()>,
}

/// The duty to say when the symbols' code and data are in place, and what they depend on.
///
/// # Concurrency
/// As [`MaterializationResponsibility`].
///
/// ORC: `MaterializationResponsibility`, its second half.
#[derive(Debug)]
pub struct ResolvedResponsibility {
    duty: Box<Duty>,
    not_send: PhantomData<*mut ()>,
}

impl MaterializationResponsibility {
    /// The symbols anybody waits for or depends on at this moment.
    ///
    /// # Cost
    /// One transaction, linear in the symbols covered.
    ///
    /// ORC: `MaterializationResponsibility::getRequestedSymbols`.
    pub fn requested_symbols(&self) -> Vec<SymbolName> {
        self.duty.session().transact(|state, _| state.requested(self.duty.claim))
    }

    /// Takes on further symbols of this unit; returns those it is now responsible for.
    ///
    /// Weak symbols that another unit already defines are left out.
    ///
    /// # Errors
    /// [`DefineError::Duplicate`] for a strong symbol that exists, [`DefineError::TrackerDefunct`] if the symbols were removed;
    /// nothing was taken on then.
    ///
    /// ORC: `MaterializationResponsibility::defineMaterializing`.
    pub fn define_materializing(&mut self, symbols: SymbolFlagsMap) -> Result<SymbolFlagsMap, DefineError> {
        let accepted = self.duty.session().transact(|state, effects| {
            state.define_materializing(self.duty.claim, &self.duty.unit_name, symbols, effects)
        })?;
        self.duty.symbols.extend(accepted.iter().map(|(name, flags)| (name.clone(), *flags)));
        Ok(accepted)
    }

    /// Puts the symbols back as `unit`, to be materialized when they are looked up: at once if a lookup waits for one.
    ///
    /// # Errors
    /// Unless `unit` provides exactly the symbols of this responsibility ([`DefineError::NotCovered`]), with their flags but for weak
    /// and common ([`DefineError::Flags`]); [`DefineError::TrackerDefunct`] if the symbols were removed. The responsibility comes back
    /// inside [`Refused`]; `unit` has been dropped then.
    ///
    /// ORC: `MaterializationResponsibility::replace`.
    pub fn replace(mut self, unit: Box<dyn MaterializationUnit>) -> Result<(), Refused<Self, DefineError>> {
        let session = self.duty.session().clone();
        let (definition, unit) = session.describe(unit);
        // This thread may run the new unit before the call returns, blocked in no more than that.
        self.duty.give_back();
        let covered = &self.duty.symbols;
        match session
            .transact(|state, effects| state.replace(self.duty.claim, covered, definition, unit, effects))
        {
            Ok(()) => {
                self.duty.settle();
                Ok(())
            }
            Err(error) => {
                self.duty.hold();
                Err(Refused::new(self, error))
            }
        }
    }

    /// Splits off the duty for `names`.
    ///
    /// # Errors
    /// [`DelegateError::NotCovered`] if this responsibility does not cover one of them, [`DelegateError::TrackerDefunct`] if the
    /// symbols were removed; nothing was split off then.
    ///
    /// # Cost
    /// Linear in `names`, however many symbols are left: a unit may be taken apart symbol by symbol.
    ///
    /// ORC: `MaterializationResponsibility::delegate`.
    pub fn delegate(&mut self, names: impl IntoIterator<Item = SymbolName>) -> Result<Self, DelegateError> {
        self.duty.split(names.into_iter().collect()).map(Box::new).map(Self::from_duty)
    }

    /// Announces where the symbols are. Every symbol needs an address, except those that exist for their
    /// side effects only, which must not have one.
    ///
    /// Lookups that asked for `Resolved` are answered; the symbols are not safe to run yet.
    ///
    /// # Errors
    /// [`ResolveError::Missing`] and [`ResolveError::Unexpected`] addresses; [`ResolveError::Flags`] for a symbol that is not what its
    /// unit promised; [`ResolveError::TrackerDefunct`] if the symbols were removed. The responsibility comes back unchanged inside
    /// [`Refused`].
    ///
    /// # Cost
    /// Linear in the symbols, during one hold of the session's lock.
    ///
    /// ORC: `MaterializationResponsibility::notifyResolved`.
    pub fn notify_resolved(
        self,
        addresses: &SymbolMap,
    ) -> Result<ResolvedResponsibility, Refused<Self, ResolveError>> {
        match self.resolve(addresses) {
            Ok(()) => Ok(self.into_resolved()),
            Err(error) => Err(Refused::new(self, *error)),
        }
    }

    /// The first step, for those who keep the responsibility as it is: it can only become what is [resolved](Self::into_resolved) then.
    pub(crate) fn resolve(&self, addresses: &SymbolMap) -> Result<(), Box<ResolveError>> {
        let (claim, covered) = (self.duty.claim, &self.duty.symbols);
        let unit = &self.duty.unit_name;
        let phase = crate::in_span::phase!(
            "symbols.resolve",
            session = self.duty.session().tag().noted(),
            claim = claim.noted(),
            unit = %unit,
            symbols = covered.len(),
        );
        // An error is large, and rare: what is moved on the way out of the lock is a pointer.
        let resolve = |state: &mut SessionState<Live>, effects: &mut Effects<Live>| {
            state.resolve(claim, unit, covered, addresses, effects).map_err(Box::new)
        };
        in_span(phase, || self.duty.session().transact(resolve))
    }

    /// The second step's duty, after the first.
    pub(crate) fn into_resolved(self) -> ResolvedResponsibility {
        ResolvedResponsibility { duty: self.duty, not_send: PhantomData }
    }
}

impl ResolvedResponsibility {
    /// Announces that code and data are in place, and which symbols depend on which others.
    ///
    /// Symbols named in no group depend on nothing. Each symbol becomes Ready once everything it depends
    /// on, directly or not, has been emitted. Dependencies that no lookup has searched are claimed now.
    ///
    /// # Errors
    /// A dependency that has failed ([`EmitError::DependencyFailed`]) or is gone ([`EmitError::DependencyRemoved`]) refuses the whole
    /// emission. So do [`EmitError::ForeignDependency`], [`EmitError::Unexpected`] for groups that name what is not covered, or a symbol
    /// twice, and [`EmitError::TrackerDefunct`]. The responsibility comes back unchanged inside [`Refused`].
    ///
    /// # Cost
    /// Linear in the symbols and their dependencies, during one hold of the session's lock. Symbols that become Ready through it
    /// do so in slices of about a thousand steps.
    ///
    /// ORC: `MaterializationResponsibility::notifyEmitted`.
    pub fn notify_emitted(mut self, groups: Vec<DependenceGroup>) -> Result<(), Refused<Self, EmitError>> {
        let (unit, symbols) = (&self.duty.unit_name, self.duty.symbols.len());
        let phase = crate::in_span::phase!(
            "symbols.emit",
            session = self.duty.session().tag().noted(),
            claim = self.duty.claim.noted(),
            unit = %unit,
            symbols,
        );
        match in_span(phase, || self.emit(&groups)) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(self, *error)),
        }
    }

    /// Settles the duty, if nothing refuses the emission.
    fn emit(&mut self, groups: &[DependenceGroup]) -> Result<(), Box<EmitError>> {
        let Duty { claim, unit_name: ref unit, symbols: ref covered, .. } = *self.duty;
        let session = self.duty.session();
        let foreign = |group: &&DependenceGroup| {
            group.dependencies.iter().any(|dependency| dependency.session != session.tag())
        };
        if let Some(DependenceGroup { symbols, .. }) = groups.iter().find(foreign) {
            let dependants = symbols.clone();
            return Err(Box::new(EmitError::ForeignDependency { unit: unit.clone(), dependants }));
        }
        // See `notify_resolved`.
        session
            .transact(|state, effects| state.emit(claim, unit, covered, groups, effects).map_err(Box::new))?;
        self.duty.settle();
        Ok(())
    }
}

/// The methods of both steps of a responsibility.
macro_rules! common_methods {
    ($type:ident) => {
        impl $type {
            /// The session the symbols belong to.
            pub fn session(&self) -> &ExecutionSession {
                self.duty.session()
            }

            /// The dylib the symbols are defined in.
            pub fn dylib(&self) -> &JitDylib {
                self.duty.dylib()
            }

            /// The name of the unit the symbols come from.
            pub fn unit_name(&self) -> &str {
                self.duty.unit_name.as_str()
            }

            /// The symbols this responsibility covers.
            pub fn symbols(&self) -> &SymbolFlagsMap {
                &self.duty.symbols
            }

            /// The symbol that stands for the unit's initialisers, if this responsibility covers it.
            pub fn initializer_symbol(&self) -> Option<&SymbolName> {
                self.duty.initializer.as_ref()
            }

            /// The token by which others of its unit's symbols may depend on `symbol`, if it is covered.
            pub fn dependency(&self, symbol: &SymbolName) -> Option<Dependency> {
                let row = self
                    .duty
                    .session()
                    .transact(|state, _| state.definitions.row_of_claim(self.duty.claim, symbol))?;
                Some(Dependency { row, session: self.duty.session().tag() })
            }

            /// Lets `resource` live as long as the symbols: until their tracker is removed, or the last of them by name.
            ///
            /// Symbols that are delegated later keep it as well, and so do those that this responsibility defines later.
            ///
            /// # Errors
            /// [`TrackerError::Defunct`] if the tracker was removed; the resource has been dropped then.
            pub fn add_resource(&self, resource: Box<dyn Resource>) -> Result<(), TrackerError> {
                let resource = Registered::new(resource);
                self.duty
                    .session()
                    .transact(|state, effects| state.add_claim_resource(self.duty.claim, resource, effects))
                    .map_err(|Defunct| TrackerError::Defunct { dylib: self.duty.dylib().shared_name() })
            }

            /// Fails the symbols, and everything that depends on them, with `error`.
            ///
            /// An error that has more than 16 failures of others among its sources, or 128 sources, is cut short: what stands for it says how many
            /// errors are not listed, and has the failure that it began with as its source. So a chain of units that each fail with
            /// what they were told ends in an error that can be printed and dropped. An error that wraps what it was told must name it
            /// as its [source](Error::source) for that.
            ///
            /// # Cost
            /// Linear in the symbols and in what waits for them; what depends on them falls in slices.
            ///
            /// ORC: `MaterializationResponsibility::failMaterialization`.
            pub fn fail(mut self, error: SharedError) {
                self.duty.fail(FailureCause::Unit(error));
            }

            /// Lets the responsibility leave this thread, which no longer counts as at work on it. Until another thread takes it up, no
            /// wait for its symbols is a certain deadlock.
            pub fn detach(self) -> Detached<Self> {
                let mut duty = self.duty;
                duty.leave_thread();
                Detached { duty, step: PhantomData }
            }
        }

        impl Step for $type {
            fn from_duty(mut duty: Box<Duty>) -> Self {
                duty.hold();
                Self { duty, not_send: PhantomData }
            }

            fn duty_mut(&mut self) -> &mut Duty {
                &mut self.duty
            }
        }
    };
}

common_methods!(MaterializationResponsibility);
common_methods!(ResolvedResponsibility);

/// A responsibility on its way to another thread, or parked. Dropping it fails its symbols.
///
/// While a responsibility is detached, any thread may finish it: no wait for its symbols is a certain
/// deadlock.
#[derive(Debug)]
pub struct Detached<T: Step> {
    duty: Box<Duty>,
    step: PhantomData<fn() -> T>,
}

impl<T: Step> Detached<T> {
    /// Takes the responsibility up on this thread.
    pub fn attach(self) -> T {
        T::from_duty(self.duty)
    }

    /// Fails the symbols with `error`.
    pub fn fail(mut self, error: SharedError) {
        self.duty.fail(FailureCause::Unit(error));
    }
}

/// Implemented by the two steps of a responsibility; not for other types.
pub trait Step: sealed::Sealed {
    #[doc(hidden)]
    fn from_duty(duty: Box<Duty>) -> Self;
    #[doc(hidden)]
    fn duty_mut(&mut self) -> &mut Duty;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::MaterializationResponsibility {}
    impl Sealed for super::ResolvedResponsibility {}
}

/// An operation that was refused, with the responsibility unchanged.
///
/// Not convertible by `?` on its own, because dropping the responsibility would lose the reason:
/// [`Refused::fail`] fails the symbols with it.
#[derive(Debug)]
pub struct Refused<T, E> {
    /// The responsibility, as usable as before.
    pub responsibility: T,
    /// Why the operation was refused.
    pub error: E,
}

impl<T, E> Refused<T, E> {
    fn new(responsibility: T, error: E) -> Self {
        Self { responsibility, error }
    }
}

impl<T: Step, E: Error + Clone + Send + Sync + 'static> Refused<T, E> {
    /// Fails the responsibility's symbols with the error, and gives the error back.
    pub fn fail(mut self) -> E {
        self.responsibility.duty_mut().fail(FailureCause::Unit(std::sync::Arc::new(self.error.clone())));
        self.error
    }
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
