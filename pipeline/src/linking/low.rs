//! Addresses below 2 GiB: the objects that need them, and the entries there for functions that lie elsewhere.
//!
//! An object built without position-independent code holds addresses in 32 bits. It is placed low, and with it the
//! symbols that it refers to in that way:
//!
//! | reference to | source of its address |
//! |---|---|
//! | itself | it lies low |
//! | a definition of an object that is linked later | that object is placed low too |
//! | a function that lies elsewhere already | an entry: a jump below 2 GiB, one for each function |
//! | a function of a library that was not looked up yet | an entry, which is its address for the whole session |
//! | a variable of a library that was not looked up yet | a copy, where that is allowed (`runtime/process/copies.rs`) |
//! | another variable | nowhere: an error that says `-fPIC` |
//!
//! **Function pointers.** The address of a library's function is one and the same in all linked code if no linked code
//! had asked for it when the first such object was added. Libraries keep their own address of it; natively they
//! have the program's.

use std::collections::HashSet;
use std::fmt;
use std::sync::Weak;

use rustc_hash::FxHashMap;
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use crate::executor::{Actions, Executor, PublishError, Published};
use crate::link::elf::Refs32;
use crate::memory::{SegmentKind, SegmentRequest};

/// Addresses below this are held in 32 bits, signed or not.
const LOW_END: u64 = 1 << 31;

/// The low addresses of a session.
///
/// # Concurrency
/// Any thread may ask. One lock, held for map operations; memory is asked for without it.
pub struct LowAddresses {
    executor: Arc<dyn Executor>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether there is an object that holds addresses in 32 bits.
    is_needed: bool,
    /// Symbols that objects refer to over a distance or by an address of 32 bits.
    close: HashSet<Box<str>>,
    /// By the address of the function.
    entries: FxHashMap<ExecutorAddr, Weak<LowEntry>>,
    /// How many entries there may be before those that are gone are looked for.
    sweep_at: usize,
    /// The entries that are a library's function for the whole session.
    kept: Vec<Arc<LowEntry>>,
    may_copy: bool,
}

/// A jump below 2 GiB to a function that lies elsewhere. It goes with its last user.
pub(super) struct LowEntry(Box<dyn Published>);

impl LowEntry {
    fn new(executor: &dyn Executor, function: ExecutorAddr) -> Result<Self, PublishError> {
        let arch = executor.architecture();
        let bytes = arch.entry_bytes();
        let request = SegmentRequest {
            kind: SegmentKind::Code,
            content_bytes: bytes,
            zero_fill_bytes: 0,
            align: bytes,
        };
        let mut memory = executor.memory().allocate_low("entries of functions below 2 GiB", &[request])?;
        arch.write_entry(memory.working(0), function.value());
        let actions = Actions { low_entry: Some(memory.address(0)), ..Actions::default() };
        executor.publish(memory, None, actions).map(Self)
    }

    /// Where it is.
    pub(super) fn address(&self) -> ExecutorAddr {
        self.0.address(0)
    }
}

impl LowAddresses {
    /// A session without objects that need low addresses. Entries and copies come from `executor`.
    pub fn new(executor: Arc<dyn Executor>) -> Self {
        Self { executor, state: Mutex::default() }
    }

    /// Lets variables of libraries move below 2 GiB, or forbids it from here on.
    ///
    /// A moved variable has its address in this process, not in this session. So only the owner of the process may allow it, and before
    /// anything of the program has run: pointers to the variable stay as they are.
    pub fn allow_copies(&self, allowed: bool) {
        self.state.lock().may_copy = allowed;
    }

    /// Notes what an object that may be linked refers to.
    pub(super) fn announce(&self, references: &Refs32<'_>) {
        if references.names.is_empty() && !references.needs_low_addresses {
            return;
        }
        let mut state = self.state.lock();
        state.is_needed |= references.needs_low_addresses;
        for &name in &references.names {
            if !state.close.contains(name) {
                state.close.insert(name.into());
            }
        }
    }

    /// Whether there is an object that holds addresses in 32 bits.
    pub(super) fn is_needed(&self) -> bool {
        self.state.lock().is_needed
    }

    /// Whether an object refers to `name` over a distance, or by an address, of 32 bits.
    pub fn is_close(&self, name: &str) -> bool {
        self.state.lock().close.contains(name)
    }

    /// Whether an object may need `name` below 2 GiB.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        let state = self.state.lock();
        state.is_needed && state.close.contains(name)
    }

    /// The address of a symbol of the process in this session: its own, unless an object needs it low.
    pub fn of_process(&self, name: &str, definition: ExecutorSymbolDef) -> ExecutorSymbolDef {
        let is_low = definition.address.value() < LOW_END;
        if is_low || definition.flags.contains(SymbolFlags::THREAD_LOCAL) || !self.is_wanted(name) {
            return definition;
        }
        let address = if self.is_function(&definition) {
            self.entry(definition.address).ok().map(|entry| {
                let address = entry.address();
                self.state.lock().kept.push(entry);
                address
            })
        } else {
            let may_move = self.state.lock().may_copy;
            self.executor.low_variable(definition.address, may_move)
        };
        // If there is no low address, the link of the object that needs one reports that.
        ExecutorSymbolDef { address: address.unwrap_or(definition.address), ..definition }
    }

    /// The entry of a function, if that lies elsewhere.
    ///
    /// # Errors
    /// [`PublishError`] if there is no memory for it.
    pub(super) fn entry_of(
        &self,
        definition: &ExecutorSymbolDef,
    ) -> Result<Option<Arc<LowEntry>>, PublishError> {
        if definition.address.value() < LOW_END || !self.is_function(definition) {
            return Ok(None);
        }
        self.entry(definition.address).map(Some)
    }

    fn entry(&self, function: ExecutorAddr) -> Result<Arc<LowEntry>, PublishError> {
        let known = self.state.lock().entries.get(&function).and_then(Weak::upgrade);
        if let Some(entry) = known {
            return Ok(entry);
        }
        let new = Arc::new(LowEntry::new(&*self.executor, function)?);
        let mut state = self.state.lock();
        // Another thread may have been faster, and its entry has been given out.
        if let Some(entry) = state.entries.get(&function).and_then(Weak::upgrade) {
            return Ok(entry);
        }
        if state.entries.len() >= state.sweep_at {
            state.entries.retain(|_, entry| entry.strong_count() > 0);
            state.sweep_at = 2 * state.entries.len() + 64;
        }
        state.entries.insert(function, Arc::downgrade(&new));
        Ok(new)
    }

    /// Whether a jump can stand for the definition. A library's constants may lie in a segment that can be executed.
    fn is_function(&self, definition: &ExecutorSymbolDef) -> bool {
        definition.flags.contains(SymbolFlags::CALLABLE) && !self.executor.is_variable(definition.address)
    }
}

impl fmt::Debug for LowAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("LowAddresses")
            .field("is_needed", &state.is_needed)
            .field("entries", &state.entries.len())
            .finish_non_exhaustive()
    }
}
