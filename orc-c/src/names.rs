//! Interned names as C has them: counted entries of a pool, compared by their address.
//!
//! The address of an entry is that of the name's text. An entry is in the table from when C first gets it until its count is zero and the
//! client clears dead entries. Releasing it too often does no harm.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::LazyLock;

use uruk::core::SymbolName;
use uruk::core::sync::Mutex;

use crate::errors::Problem;
use crate::handles::Handle;

struct Counted {
    name: SymbolName,
    count: usize,
}

static NAMES: LazyLock<Mutex<HashMap<Handle, Counted>>> = LazyLock::new(Mutex::default);

/// An entry that the client releases.
pub(crate) fn give(name: &SymbolName) -> Handle {
    let handle = Handle::of_address(name.as_c_str().as_ptr().addr());
    let mut names = NAMES.lock();
    names.entry(handle).or_insert_with(|| Counted { name: name.clone(), count: 0 }).count += 1;
    handle
}

/// The name of an entry.
pub(crate) fn get(handle: Handle) -> Result<SymbolName, Problem> {
    let known = NAMES.lock().get(&handle).map(|counted| counted.name.clone());
    known.ok_or_else(|| unknown(handle))
}

/// The name of an entry, which is released.
pub(crate) fn take(handle: Handle) -> Result<SymbolName, Problem> {
    let mut names = NAMES.lock();
    let counted = names.get_mut(&handle).ok_or_else(|| unknown(handle))?;
    counted.count = counted.count.saturating_sub(1);
    Ok(counted.name.clone())
}

/// Forgets the entries whose count is zero.
pub(crate) fn clear_dead() {
    let mut names = NAMES.lock();
    let dead: Vec<_> = names.extract_if(|_, counted| counted.count == 0).collect();
    drop(names);
    drop(dead);
}

/// Entries that C sees while this lives.
#[derive(Default)]
pub(crate) struct Lent(Vec<Handle>);

impl Lent {
    pub(crate) fn lend(&mut self, name: &SymbolName) -> Handle {
        let handle = give(name);
        self.0.push(handle);
        handle
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for handle in self.0.drain(..) {
            let _ = take(handle);
        }
    }
}

fn unknown(handle: Handle) -> Problem {
    Problem::new(match handle.address() {
        0 => "LLVMOrcSymbolStringPoolEntryRef is null".to_owned(),
        address => format!(
            "LLVMOrcSymbolStringPoolEntryRef at {address:#x} is no entry of liburuk_orc, or was cleared after its last release"
        ),
    })
}

interface! {
    fn LLVMOrcRetainSymbolStringPoolEntry(entry: Handle) {
        match NAMES.lock().get_mut(&entry) {
            Some(counted) => counted.count += 1,
            None => return Err(unknown(entry)),
        }
        Ok(())
    }

    fn LLVMOrcReleaseSymbolStringPoolEntry(entry: Handle) {
        take(entry).map(drop)
    }

    /// The string lives as long as the entry: the name in the table keeps it.
    fn LLVMOrcSymbolStringPoolEntryStr(entry: Handle) -> *const c_char {
        Ok(get(entry)?.as_c_str().as_ptr())
    }
}
