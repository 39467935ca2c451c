//! The table: the functions to be run at an end, in order, and the runners.
//!
//! All handlers come before all finalizers, and the newest of each first. A *runner* runs the functions of one end. Its list is in the
//! table too, so that a function that is registered meanwhile joins it, and so that `exit` inside of a handler finds the rest.
//!
//! Model: `loom-tests/tests/endings.rs`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ops::DerefMut;

use uruk_core::RemovalNumber;
use uruk_core::sync::weakened;

use super::owners::{KeptCode, Owner, Owners};
use super::{CodeExtent, CodeNumber, ExitCall, Home};
use crate::executor::ArrayFunction;

/// Where a function stands: the greatest key runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExitKey {
    /// An element of a `.fini_array`, of code that was initialised at `start`.
    Finalizer {
        start: u64,
        function: ArrayFunction,
    },
    Handler {
        place: u64,
    },
}

/// A function in the table.
#[derive(Debug)]
pub(super) struct ExitEntry {
    pub(super) call: ExitCall,
    /// The code that has to be there: first the one that registered it.
    pub(super) owners: Vec<CodeNumber>,
}

/// The part of the process that ends.
pub(super) enum EndScope {
    /// Functions that dylibs have registered.
    Homes(Vec<Home>),
    /// Functions that belong to code that goes with a removal, which is this code.
    Removal(RemovalNumber, Vec<CodeNumber>),
    /// Functions that belong to this code, to which no reference is left.
    Last(CodeNumber),
    /// Everything there is.
    Everything,
}

struct Runner {
    scope: EndScope,
    pending: BTreeSet<ExitKey>,
}

pub(crate) struct ExitTable {
    last_number: u64,
    owners: Owners,
    entries: BTreeMap<ExitKey, ExitEntry>,
    runners: BTreeMap<u64, Runner>,
    /// The code whose last share goes with each removal that has begun.
    leaving: BTreeMap<RemovalNumber, Vec<CodeNumber>>,
    /// How many libraries had been loaded when the C library was last told to call us at `exit`.
    told_library_at: Option<u64>,
}

/// Runs the functions of `scope`, newest first, and those that are registered for it meanwhile: by `run`, without the lock that `lock`
/// takes.
pub(super) fn run_all<G: DerefMut<Target = ExitTable>>(
    lock: impl Fn() -> G,
    scope: EndScope,
    mut run: impl FnMut(ExitCall),
) {
    let Some(runner) = lock().begin(scope) else { return };
    loop {
        // Dropped without the lock: the code that they keep may go with them.
        let mut kept = Vec::new();
        let next = lock().take_next(runner, &mut kept);
        let Some(call) = next else { return };
        run(call);
    }
}

impl ExitTable {
    pub(super) const fn new() -> Self {
        Self {
            last_number: 0,
            owners: Owners::new(),
            entries: BTreeMap::new(),
            runners: BTreeMap::new(),
            leaving: BTreeMap::new(),
            told_library_at: None,
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn add_code(&mut self, extent: CodeExtent) -> CodeNumber {
        let number = CodeNumber(self.next_number());
        self.owners.add(number, extent);
        number
    }

    /// Forgets code; gives how many of its functions have not run.
    pub(super) fn remove_code(&mut self, number: CodeNumber) -> (Option<Owner>, usize) {
        let owner = self.owners.remove(number);
        // A caller that removes resources in its own way may not have run anything.
        if let Some(removal) = owner.as_ref().and_then(|owner| owner.removal)
            && let Some(leaving) = self.leaving.get_mut(&removal)
        {
            leaving.retain(|code| *code != number);
            if leaving.is_empty() {
                self.leaving.remove(&removal);
            }
        }
        let lost =
            owner.as_ref().map_or(0, |owner| owner.entries.iter().filter(|key| self.forget(**key)).count());
        (owner, lost)
    }

    pub(super) fn owner_mut(&mut self, number: CodeNumber) -> Option<&mut Owner> {
        self.owners.get_mut(number)
    }

    pub(super) fn leave(&mut self, code: CodeNumber, removal: RemovalNumber) {
        let Some(owner) = self.owners.get_mut(code) else { return };
        owner.shares = owner.shares.saturating_sub(1);
        if owner.shares == 0 {
            owner.removal = Some(removal);
            self.leaving.entry(removal).or_default().push(code);
        }
    }

    pub(super) fn take_leaving(&mut self, removal: RemovalNumber) -> Vec<CodeNumber> {
        self.leaving.remove(&removal).unwrap_or_default()
    }

    /// Whose code or data lies at these addresses, each once.
    pub(super) fn owners_at<const N: usize>(&mut self, addresses: [u64; N]) -> Vec<CodeNumber> {
        let mut owners = Vec::new();
        for owner in addresses.into_iter().filter_map(|address| self.owners.at(address)) {
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        owners
    }

    /// Adds a function.
    pub(super) fn add(&mut self, key: ExitKey, entry: ExitEntry) {
        for runner in self.runners.values_mut() {
            if runner.scope.has(&entry, &self.owners) && !weakened("endings::joins_no_runner") {
                runner.pending.insert(key);
            }
        }
        for owner in &entry.owners {
            if let Some(owner) = self.owners.get_mut(*owner) {
                owner.entries.insert(key);
            }
        }
        self.entries.insert(key, entry);
    }

    /// Sees to it that the C library was told to call us at `exit` when as many `libraries` had been loaded. `false` if it cannot be.
    pub(super) fn tell_library(&mut self, libraries: u64, tell: impl FnOnce() -> bool) -> bool {
        if self.told_library_at != Some(libraries) && tell() {
            self.told_library_at = Some(libraries);
        }
        self.told_library_at == Some(libraries)
    }

    /// Begins to run what `scope` has. `None` if there is nothing.
    pub(super) fn begin(&mut self, scope: EndScope) -> Option<u64> {
        let of_code = |code: &CodeNumber| self.owners.get(*code).map(|owner| &owner.entries);
        let pending: BTreeSet<ExitKey> = match &scope {
            EndScope::Removal(_, code) => code.iter().filter_map(of_code).flatten().copied().collect(),
            EndScope::Last(code) => of_code(code).cloned().unwrap_or_default(),
            EndScope::Homes(_) | EndScope::Everything => {
                let entries = self.entries.iter().filter(|(_, entry)| scope.has(entry, &self.owners));
                entries.map(|(key, _)| *key).collect()
            }
        };
        if pending.is_empty() {
            return None;
        }
        let runner = self.next_number();
        self.runners.insert(runner, Runner { scope, pending });
        Some(runner)
    }

    /// Takes what the runner is to run next; `kept` gets what keeps its code, and outlives the lock. Ends the runner if that was all.
    pub(super) fn take_next(&mut self, runner: u64, kept: &mut Vec<KeptCode>) -> Option<ExitCall> {
        loop {
            let Runner { scope, pending } = self.runners.get_mut(&runner)?;
            let Some(key) = pending.pop_last() else {
                self.runners.remove(&runner);
                return None;
            };
            // Another runner may have been faster.
            let Some(entry) = self.entries.get(&key) else { continue };
            let last = if let EndScope::Last(code) = scope { Some(*code) } else { None };
            let mut holds = entry.owners.iter().filter(|code| Some(**code) != last).map(|code| {
                let held = self.owners.get(*code).and_then(Owner::hold);
                let is_held = held.is_some();
                if !weakened("endings::keeps_no_code") {
                    kept.extend(held);
                }
                is_held
            });
            // If no reference to the code is left, the thread that dropped the last one runs this function.
            if holds.all(|held| held) {
                let call = entry.call;
                if !weakened("endings::leaves_what_runs") {
                    self.forget(key);
                }
                return Some(call);
            }
        }
    }

    /// Takes an entry out. Says whether it was there.
    fn forget(&mut self, key: ExitKey) -> bool {
        let Some(entry) = self.entries.remove(&key) else { return false };
        for owner in entry.owners {
            if let Some(owner) = self.owners.get_mut(owner) {
                owner.entries.remove(&key);
            }
        }
        true
    }
}

impl EndScope {
    fn has(&self, entry: &ExitEntry, owners: &Owners) -> bool {
        match self {
            // A function that another dylib has registered stays that dylib's, wherever the function lies.
            Self::Homes(homes) => {
                let registrant = entry.owners.first().and_then(|code| owners.get(*code));
                registrant.is_some_and(|owner| homes.contains(&owner.home))
            }
            Self::Removal(removal, _) => {
                let goes =
                    |code: &CodeNumber| owners.get(*code).is_some_and(|code| code.removal == Some(*removal));
                entry.owners.iter().any(goes)
            }
            Self::Last(code) => entry.owners.contains(code),
            Self::Everything => true,
        }
    }
}
