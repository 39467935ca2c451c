//! Presence: whether a definition that a lookup has found is still there, for who keeps what lies at its address.

use crate::protocol::symbols::presence::Presence;
use crate::sync::weakened;
use crate::{Dependency, LookupError};

use super::ExecutionSession;

impl ExecutionSession {
    /// Runs `hold`, and gives its result if `definition` was there all the while, with all that it is an alias of. `None` if it
    /// was removed: look the symbol up again.
    ///
    /// An address says nothing of what lies there: when its symbol is removed, something else may come to lie in the place.
    /// `hold` keeps what it finds there, and this says whether that is the definition's.
    ///
    /// # Concurrency
    /// `hold` runs on this thread, without a lock. Takes the session's lock for a moment.
    ///
    /// # Errors
    /// [`LookupError::AliasOfRemoved`] if the definition is there, and what it is an alias of is not. Looking it up again would find the
    /// same.
    ///
    /// # Examples
    /// ```
    /// # use uruk_core::{ExecutionSession, ExecutorAddr, ExecutorSymbolDef, LookupRequest, LookupSet, SymbolFlags, absolute_symbols};
    /// # let session = ExecutionSession::new();
    /// # let main = session.create_jit_dylib("main")?;
    /// # let name = session.intern("function");
    /// # let address = ExecutorSymbolDef::new(ExecutorAddr::new(1), SymbolFlags::EXPORTED);
    /// # main.define(absolute_symbols([(name.clone(), address)].into_iter().collect()))?;
    /// let found = session.lookup(LookupRequest::new(main.link_order(), LookupSet::required([name.clone()])))?;
    /// let definition = found.dependency(&name).expect("it was found");
    /// assert_eq!(session.while_present(definition, || "kept")?, Some("kept"));
    /// main.remove(&[name])?;
    /// assert_eq!(session.while_present(definition, || "kept")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn while_present<T>(
        &self,
        definition: Dependency,
        hold: impl FnOnce() -> T,
    ) -> Result<Option<T>, LookupError> {
        if weakened("hold::looks_before_it_holds") {
            return self.presence_of(definition).map(|is_there| is_there.then(hold));
        }
        let held = hold();
        self.presence_of(definition).map(|is_there| is_there.then_some(held))
    }

    /// Runs `look`, and gives its result if meanwhile nothing of the session was removed, redefined or hidden. `None` if something was, or
    /// the session is closed: ask by [`lookup`](Self::lookup) and [`while_present`](Self::while_present).
    ///
    /// So a symbol that `look` has found [Ready](Self::ready_symbol) was there all the while, with all that it is an alias of and all that it needs.
    ///
    /// # Concurrency
    /// `look` runs on this thread, without a lock. Never waits.
    ///
    /// # Cost
    /// Two loads.
    ///
    /// # Examples
    /// ```
    /// # use uruk_core::ExecutionSession;
    /// # let session = ExecutionSession::new();
    /// assert_eq!(session.while_unchanged(|| 42), Some(42));
    /// session.close()?;
    /// assert_eq!(session.while_unchanged(|| 42), None);
    /// # Ok::<(), uruk_core::CloseError>(())
    /// ```
    #[inline]
    pub fn while_unchanged<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let index = &self.0.ready_index;
        let before = index.version()?;
        let seen = look();
        (index.is_at(before) || weakened("hold::looks_once")).then_some(seen)
    }

    fn presence_of(&self, definition: Dependency) -> Result<bool, LookupError> {
        if definition.session != self.tag() {
            return Ok(false);
        }
        match self.transact(|state, _| state.presence(definition.row)) {
            Presence::Present => Ok(true),
            Presence::Removed => Ok(false),
            Presence::AliasOfRemoved(alias) => Err(LookupError::AliasOfRemoved { alias }),
        }
    }
}
