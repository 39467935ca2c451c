//! Initialisers and finalisers of linked objects: who has some, in which order they run, which have run.
//!
//! A unit that has initialisers carries an *initializer symbol*: a symbol without an address whose lookup
//! runs the unit. [`Platform::declare`] hands these out and remembers the order in which units came, which
//! is the order a static linker would have put them in. When the linker has placed such a unit it
//! [records](Platform::record) the functions it found; [`Platform::take_initializers`] then hands them out
//! once each, sorted the way a process start runs them.
//!
//! **Never:** this module calls nothing. Whoever takes the functions runs them.

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_core::sync::Mutex;
use uruk_core::{ExecutionSession, ExecutorAddr, SymbolName};

use crate::link::FRAGMENT_PRIORITY;
use crate::runtime::startup::ArrayFunction;

/// The priority of what is in `.preinit_array`.
const BEFORE_FRAGMENTS: i32 = FRAGMENT_PRIORITY - 1;

/// What matters about a unit before it is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTraits {
    /// Whether it has sections that lie next to those of the same name in other units, or asks where they are.
    pub shares_sections: bool,
    /// A measure of how long compiling it takes: the size of its source. Zero for what is compiled already.
    pub work_bytes: usize,
}

/// The initialisers of one session.
///
/// # Concurrency
/// Callable from any thread. One lock, held for pushes and sorts of plain numbers, never while anything
/// of the session's or the user's runs.
#[derive(Debug, Default)]
pub struct Platform {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_order: u32,
    order_of: FxHashMap<SymbolName, u32>,
    /// Initializer symbols nobody has been told of, with how much work each unit is.
    undiscovered: Vec<(usize, SymbolName)>,
    /// Initializer symbols of units that share sections and have not been handed to the linker yet.
    sharing_sections: FxHashSet<SymbolName>,
    preinitializers: Vec<ArrayFunction>,
    initializers: Vec<ArrayFunction>,
    finalizers: Vec<ArrayFunction>,
    indirect_functions: Vec<ExecutorAddr>,
}

impl Platform {
    /// Creates a platform without units.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the initializer symbol of a unit that is about to be defined. Units are linked, and
    /// initialised, in the order of these calls.
    ///
    /// A unit that shares sections is linked together with all others declared so far that do: their
    /// sections of one name then lie side by side, between `__start_X` and `__stop_X`.
    pub fn declare(&self, session: &ExecutionSession, unit: &str, traits: UnitTraits) -> SymbolName {
        let mut state = self.state.lock();
        let order = state.next_order;
        state.next_order += 1;
        let symbol = session.intern(&format!("<file {order}: {unit}>"));
        state.order_of.insert(symbol.clone(), order);
        state.undiscovered.push((traits.work_bytes, symbol.clone()));
        if traits.shares_sections {
            state.sharing_sections.insert(symbol.clone());
        }
        symbol
    }

    /// Forgets a declaration whose unit was refused by its dylib.
    pub fn withdraw(&self, symbol: &SymbolName) {
        let mut state = self.state.lock();
        state.order_of.remove(symbol);
        state.sharing_sections.remove(symbol);
        state.undiscovered.retain(|(_, declared)| declared != symbol);
    }

    /// If the unit of `symbol` shares sections, all units that do and have not been answered here before: they
    /// are to be linked together. Otherwise nothing.
    pub(crate) fn take_sharing_sections(&self, symbol: &SymbolName) -> FxHashSet<SymbolName> {
        let mut state = self.state.lock();
        if state.sharing_sections.contains(symbol) {
            std::mem::take(&mut state.sharing_sections)
        } else {
            FxHashSet::default()
        }
    }

    /// The place of a unit in link order.
    pub(crate) fn order_of(&self, symbol: &SymbolName) -> Option<u32> {
        self.state.lock().order_of.get(symbol).copied()
    }

    /// The initializer symbols declared since the last call: looking them up materializes their units,
    /// which may declare more. The largest come first: a pool that is given the longest work first ends sooner.
    pub fn take_declared(&self) -> Vec<SymbolName> {
        let mut declared = std::mem::take(&mut self.state.lock().undiscovered);
        declared.sort_by_key(|(work_bytes, _)| std::cmp::Reverse(*work_bytes));
        declared.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// Notes the functions that the linker found in the unit of `symbol`, each with its priority, in the
    /// order of their sections. Called before the unit's symbols become Ready.
    pub fn record(
        &self,
        symbol: &SymbolName,
        preinitializers: &[ExecutorAddr],
        initializers: &[(i32, ExecutorAddr)],
        finalizers: &[(i32, ExecutorAddr)],
    ) {
        let mut state = self.state.lock();
        let Some(&unit) = state.order_of.get(symbol) else { return };
        let number = |functions: &[(i32, ExecutorAddr)]| -> Vec<ArrayFunction> {
            let numbered = functions.iter().zip(0..);
            numbered
                .map(|(&(priority, address), index)| ArrayFunction { priority, unit, index, address })
                .collect()
        };
        let before: Vec<_> = preinitializers.iter().map(|&address| (BEFORE_FRAGMENTS, address)).collect();
        state.preinitializers.extend(number(&before));
        state.initializers.extend(number(initializers));
        // Finalizers run from last to first, and fragments of `.fini` in link order: their places count backwards.
        state.finalizers.extend(number(finalizers).into_iter().map(|function| match function.priority {
            FRAGMENT_PRIORITY => {
                ArrayFunction { unit: u32::MAX - unit, index: u32::MAX - function.index, ..function }
            }
            _ => function,
        }));
    }

    /// Notes the descriptors of functions that choose their implementation.
    pub fn record_indirect_functions(&self, descriptors: &[ExecutorAddr]) {
        if !descriptors.is_empty() {
            self.state.lock().indirect_functions.extend(descriptors);
        }
    }

    /// The descriptors recorded since the last call. A process binds these functions before anything of the
    /// program runs; who does not, leaves it to each function's first call.
    pub fn take_indirect_functions(&self) -> Vec<ExecutorAddr> {
        std::mem::take(&mut self.state.lock().indirect_functions)
    }

    /// What must run before the program and has not been taken yet: in running order, first what comes
    /// before everything else (`.preinit_array`), then by priority, unit and place.
    pub fn take_initializers(&self) -> Vec<ArrayFunction> {
        let mut state = self.state.lock();
        let mut taken = std::mem::take(&mut state.preinitializers);
        let mut initializers = std::mem::take(&mut state.initializers);
        drop(state);
        taken.sort_unstable();
        initializers.sort_unstable();
        taken.append(&mut initializers);
        taken
    }

    /// What must run after the program and has not been taken yet. It runs from last to first.
    pub fn take_finalizers(&self) -> Vec<ArrayFunction> {
        let mut taken = std::mem::take(&mut self.state.lock().finalizers);
        taken.sort_unstable();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[ArrayFunction]) -> Vec<u64> {
        list.iter().map(|entry| entry.address.value()).collect()
    }

    #[test]
    fn initializers_run_by_priority_then_unit_then_position() {
        let session = ExecutionSession::new();
        let platform = Platform::new();
        let first = platform.declare(&session, "first.o", UnitTraits::default());
        let second = platform.declare(&session, "second.o", UnitTraits::default());
        const DEFAULT_PRIORITY: i32 = 65535;
        let at = |priority, address| (priority, ExecutorAddr::new(address));
        // Linked in the opposite order, as two workers may.
        platform.record(
            &second,
            &[ExecutorAddr::new(5)],
            &[at(DEFAULT_PRIORITY, 21), at(101, 20), at(DEFAULT_PRIORITY, 22)],
            &[at(DEFAULT_PRIORITY, 21)],
        );
        platform.record(
            &first,
            &[],
            &[at(DEFAULT_PRIORITY, 11), at(200, 10)],
            &[at(DEFAULT_PRIORITY, 11), at(200, 10)],
        );

        assert_eq!(addresses(&platform.take_initializers()), [5, 20, 10, 11, 21, 22]);
        assert_eq!(addresses(&platform.take_finalizers()), [10, 11, 21]);
        assert!(platform.take_initializers().is_empty());
    }

    #[test]
    fn the_unit_with_the_most_work_is_asked_for_first() {
        let session = ExecutionSession::new();
        let platform = Platform::new();
        let of = |work_bytes| UnitTraits { work_bytes, ..UnitTraits::default() };
        let declared = [("object.o", 0), ("small.bc", 10), ("large.bc", 1000), ("also_small.bc", 10)]
            .map(|(unit, work_bytes)| platform.declare(&session, unit, of(work_bytes)));
        let [object, small, large, also_small] = declared;
        assert_eq!(platform.take_declared(), [large, small, also_small, object]);
    }

    #[test]
    fn a_declared_unit_is_asked_for_once() {
        let session = ExecutionSession::new();
        let platform = Platform::new();
        let kept = platform.declare(&session, "kept.o", UnitTraits::default());
        let refused = platform.declare(&session, "refused.o", UnitTraits::default());
        platform.withdraw(&refused);
        assert_eq!(platform.take_declared(), [kept]);
        assert!(platform.take_declared().is_empty());
    }
}
