//! The table of the process: which code is at an address, and its name.

use std::fmt;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::code::NamedCode;
use super::lines::{self, SourcePlace};
use super::watchers;
use crate::code_ranges::CodeRanges;
use crate::memory::StaticForkLock;

/// The table. Forks hold it from the first publication on (`runtime/in_process.rs`).
pub(crate) static TABLE: StaticForkLock<NamedRanges> = StaticForkLock::new(NamedRanges::new());

/// Named code by its addresses.
pub(crate) struct NamedRanges {
    by_address: CodeRanges<Arc<NamedCode>>,
    pub(super) tells_gdb: bool,
    pub(super) tells_perf: bool,
    /// Code that gdb is to know and does not yet.
    pub(super) pending: Vec<Arc<NamedCode>>,
}

/// The name of an address in linked code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolAt {
    /// The symbol, as the object has it.
    pub symbol: Box<str>,
    /// How far the address is from the symbol's.
    pub offset: u64,
    /// The unit that defines it.
    pub unit: Box<str>,
    /// The dylib of the unit.
    pub dylib: Box<str>,
    /// Whether the address is in a stub that leads on to the symbol, and not in the symbol itself.
    pub is_stub: bool,
    /// The place in the source, where the object has DWARF that says so.
    pub place: Option<SourcePlace>,
}

/// Code that has its names in the table. Dropping it takes them out; to be dropped before the code's memory goes.
#[must_use = "dropping the registration undoes it"]
pub struct NameRegistration(Arc<NamedCode>);

/// Puts the names of code into the table.
///
/// # Concurrency
/// Callable from any thread. One lock, for a step in a table.
pub fn register(code: NamedCode) -> NameRegistration {
    let code = Arc::new(code);
    let mut table = TABLE.lock();
    table.add(&code);
    let (tells_perf, pending) = (table.tells_perf, table.pending.len());
    drop(table);
    if tells_perf || pending > 0 {
        watchers::added(&code, tells_perf, pending);
    }
    NameRegistration(code)
}

/// The name of an address in the code of any engine of the process. `None` if no symbol is there.
///
/// # Concurrency
/// Callable from any thread, but not from a signal handler.
///
/// # Cost
/// Linear in the symbols of the object. If that has DWARF, it is relocated and read anew each time: milliseconds for a large object.
pub fn symbol_at(address: ExecutorAddr) -> Option<SymbolAt> {
    let code = TABLE.lock().find(address.value())?.clone();
    symbol_in(&code, address)
}

/// The name of an address in a piece of code, which may be in no table.
///
/// # Cost
/// As of [`symbol_at`].
pub fn symbol_in(code: &NamedCode, address: ExecutorAddr) -> Option<SymbolAt> {
    let symbol = code.symbol_at(address.value())?;
    Some(SymbolAt {
        symbol: code.symbols.name(&symbol).into(),
        offset: address.value() - symbol.start,
        unit: code.unit_of(&symbol).into(),
        dylib: code.dylib.clone(),
        is_stub: code.is_stubs,
        place: lines::place_of(code, address.value()),
    })
}

/// Has `told` the symbol, the offset and the unit of an address, in a signal handler: without waiting and without allocating. `None` if the table
/// is locked at that moment; `Some(false)` if the address has no name.
pub(crate) fn try_symbol_at(address: u64, told: &mut dyn FnMut(&str, u64, &str)) -> Option<bool> {
    let table = TABLE.try_lock()?;
    let Some(code) = table.by_address.look_at(address) else { return Some(false) };
    let Some(symbol) = code.symbol_at(address) else { return Some(false) };
    told(code.symbols.name(&symbol), address - symbol.start, code.unit_of(&symbol));
    Some(true)
}

impl NamedRanges {
    const fn new() -> Self {
        Self { by_address: CodeRanges::new(), tells_gdb: false, tells_perf: false, pending: Vec::new() }
    }

    fn add(&mut self, code: &Arc<NamedCode>) {
        self.by_address.add(&code.ranges, code.clone());
        if self.tells_gdb {
            self.pending.push(code.clone());
        }
    }

    fn remove(&mut self, code: &Arc<NamedCode>) {
        self.by_address.remove(&code.ranges, |known| Arc::ptr_eq(known, code));
        self.pending.retain(|pending| !Arc::ptr_eq(pending, code));
    }

    /// All code, each piece once.
    pub(super) fn all(&mut self) -> Vec<Arc<NamedCode>> {
        let first = |&(start, code): &(u64, &Arc<NamedCode>)| {
            code.ranges.iter().find(|range| !range.is_empty()).is_some_and(|range| range.start == start)
        };
        self.by_address.iter().filter(first).map(|(_, code)| code.clone()).collect()
    }

    pub(super) fn find(&mut self, address: u64) -> Option<&Arc<NamedCode>> {
        self.by_address.at(address)
    }
}

impl Drop for NameRegistration {
    /// The last of the code's names goes behind the lock: objects have owners of the embedder's.
    fn drop(&mut self) {
        let mut table = TABLE.lock();
        table.remove(&self.0);
        let is_watched = table.tells_gdb || table.tells_perf;
        drop(table);
        if is_watched {
            watchers::removed(&self.0);
        }
    }
}

impl fmt::Debug for NameRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameRegistration({:#x})", self.0.code.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that no process has.
    const NOWHERE: u64 = 1 << 60;

    fn named(name: &str, start: u64) -> NamedCode {
        let range = start..start + 16;
        let mut code = NamedCode {
            units: ["unit.o".into()].into(),
            code: range.clone(),
            ranges: [range.clone()].into(),
            ..NamedCode::default()
        };
        code.symbols.add(name, 0, range, true);
        code
    }

    #[test]
    fn a_name_is_found_until_its_registration_goes_and_memory_gets_a_new_one() {
        let symbol =
            |address| symbol_at(ExecutorAddr::new(address)).map(|found| (found.symbol, found.offset));
        let first = register(named("first", NOWHERE));
        assert_eq!(symbol(NOWHERE + 3), Some(("first".into(), 3)));
        assert_eq!(symbol(NOWHERE + 16), None);
        drop(first);
        assert_eq!(symbol(NOWHERE + 3), None);
        let second = register(named("second", NOWHERE));
        assert_eq!(symbol(NOWHERE + 3), Some(("second".into(), 3)));
        drop(second);
    }

    #[test]
    fn a_locked_table_is_told_and_not_waited_for() {
        let registration = register(named("held", NOWHERE + 64));
        let ask = || {
            try_symbol_at(NOWHERE + 65, &mut |name, offset, unit| {
                assert_eq!((name, offset, unit), ("held", 1, "unit.o"));
            })
        };
        let guard = TABLE.lock();
        assert_eq!(ask(), None);
        drop(guard);
        // Other tests lock the table too.
        while ask() != Some(true) {
            std::thread::yield_now();
        }
        drop(registration);
    }
}
