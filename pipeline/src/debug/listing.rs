//! The code of a unit as it lies in memory, copied for people to read.

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::code::NamedCode;
use super::lines::{self, SourcePlace};
use super::memory;
use super::names::TABLE;

/// A function of a unit, copied.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionCode {
    /// Its symbol.
    pub symbol: Box<str>,
    /// Where it lies.
    pub address: u64,
    /// Its size in bytes. More than [`bytes`](Self::bytes) has where there was no room for them.
    pub size: u64,
    /// Its instructions.
    pub bytes: Vec<u8>,
    /// Where the place in the source changes, sorted by address; nothing where the object has no DWARF.
    pub places: Vec<(u64, SourcePlace)>,
}

/// The functions of a unit that are linked now, in the order of addresses, with `bytes_max` bytes of code in all.
///
/// # Concurrency
/// Callable from any thread. The table of names is locked while code is copied: linking waits for that.
///
/// # Cost
/// Linear in the code of the process. DWARF of the unit is relocated and read anew each time.
pub fn code_of_unit(unit: &str, bytes_max: usize) -> Vec<FunctionCode> {
    let mut left = bytes_max;
    let mut functions: Vec<(FunctionCode, Arc<NamedCode>)> = Vec::new();
    let mut table = TABLE.lock();
    for code in table.all() {
        let is_code = |index: u32| code.units.get(index as usize).is_some_and(|name| is_of_unit(name, unit));
        if code.is_stubs || !code.units.iter().any(|name| is_of_unit(name, unit)) {
            continue;
        }
        for symbol in code.symbols.iter() {
            if !symbol.is_code || symbol.size == 0 || !is_code(symbol.unit) {
                continue;
            }
            let wanted = usize::try_from(symbol.size).unwrap_or(usize::MAX).min(left);
            // SAFETY: the code is in the table, which is locked, and a registration leaves the table before the memory goes.
            let bytes = unsafe { memory::copy(&code, symbol.start, wanted) };
            left -= bytes.len();
            let function = FunctionCode {
                symbol: code.symbols.name(&symbol).into(),
                address: symbol.start,
                size: symbol.size,
                bytes,
                places: Vec::new(),
            };
            functions.push((function, code.clone()));
        }
    }
    drop(table);
    functions.sort_by_key(|(function, _)| function.address);
    let mut known: Option<(Arc<NamedCode>, _)> = None;
    let with_places = |(mut function, code): (FunctionCode, Arc<NamedCode>)| {
        let (_, places) = match known.take() {
            Some(before) if Arc::ptr_eq(&before.0, &code) => known.insert(before),
            _ => known.insert((code.clone(), lines::of(&code))),
        };
        let end = function.address + function.size;
        let first = places.partition_point(|(address, _)| *address < function.address);
        let last = places.partition_point(|(address, _)| *address < end);
        function.places = places[first..last.max(first)].to_vec();
        function
    };
    functions.into_iter().map(with_places).collect()
}

/// The symbol of an address and the distance from it, without its place in the source.
pub fn name_at(address: ExecutorAddr) -> Option<(Box<str>, u64)> {
    let code = TABLE.lock().find(address.value())?.clone();
    let symbol = code.symbol_at(address.value())?;
    Some((code.told_name(&symbol).into(), address.value() - symbol.start))
}

/// Whether a name is that of a unit, or of a function of it that was compiled by itself: `app.c: main`.
pub(crate) fn is_of_unit(name: &str, unit: &str) -> bool {
    name.strip_prefix(unit).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}
