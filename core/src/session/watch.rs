//! Watches: whether a definition is Ready, without keeping the session alive.

use std::fmt;

use crate::ids::RowId;
use crate::sync::Weak;
use crate::{ResolvedResponsibility, SymbolName};

use super::{ExecutionSession, Inner};

/// One definition of a symbol, which can be asked at any later time whether it is Ready.
///
/// For what is noted of linked code and lies in the session itself: a handle of the session would keep all of it alive.
#[derive(Clone)]
pub struct DefinitionWatch {
    session: Weak<Inner>,
    row: RowId,
}

impl ResolvedResponsibility {
    /// A watch over `symbol`, if it is covered and was not removed.
    pub fn watch(&self, symbol: &SymbolName) -> Option<DefinitionWatch> {
        let row = self.dependency(symbol)?.row;
        Some(DefinitionWatch { session: crate::sync::Arc::downgrade(&self.session().0), row })
    }
}

impl DefinitionWatch {
    /// Whether the definition is Ready at this moment. One that has failed or was removed is not, nor is one whose session is gone.
    ///
    /// # Concurrency
    /// Takes the session's lock for a moment. The session may end inside the call, if its last handle is dropped meanwhile.
    pub fn is_ready(&self) -> bool {
        let session = self.session.upgrade().map(ExecutionSession);
        session.is_some_and(|session| session.transact(|state, _| state.is_ready(self.row)))
    }
}

impl fmt::Debug for DefinitionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DefinitionWatch({:?})", self.row)
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use crate::sync::{Arc, Mutex};
    use crate::{
        ExecutionSession, ExecutorAddr, ExecutorSymbolDef, MaterializationInterface,
        MaterializationResponsibility, MaterializationUnit, SearchOrder, SymbolFlags, SymbolName,
    };

    use super::*;

    struct Watched(SymbolName, Arc<Mutex<Option<DefinitionWatch>>>);

    impl MaterializationUnit for Watched {
        fn name(&self) -> &str {
            "watched"
        }

        fn interface(&self) -> MaterializationInterface {
            MaterializationInterface::new([(self.0.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
        }

        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            let definition = ExecutorSymbolDef::new(ExecutorAddr::new(1), SymbolFlags::EXPORTED);
            let addresses = [(self.0.clone(), definition)].into_iter().collect();
            let resolved = responsibility.notify_resolved(&addresses).expect("as promised");
            let watch = resolved.watch(&self.0).expect("it is covered");
            assert!(!watch.is_ready(), "it has an address and is not emitted");
            *self.1.lock() = Some(watch);
            resolved.notify_emitted(Vec::new()).expect("nothing can refuse it");
        }

        fn discard(&mut self, _: &crate::JitDylib, _: &SymbolName) {}
    }

    #[test]
    fn a_watch_tells_ready_from_removed_and_keeps_no_session_alive() {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("a new name");
        let (name, watch) = (session.intern("name"), Arc::new(Mutex::new(None)));
        let define = || {
            dylib.define(Box::new(Watched(name.clone(), watch.clone()))).expect("a new symbol");
            session.lookup_symbol(&SearchOrder::of(&dylib), &name).expect("it emits");
            watch.lock().take().expect("it has run")
        };
        let first = define();
        assert!(first.is_ready());
        dylib.clear().expect("there are no resources");
        let second = define();
        assert_eq!((first.is_ready(), second.is_ready()), (false, true), "another definition of the name");
        drop((session, dylib));
        assert!(!second.is_ready());
    }
}
