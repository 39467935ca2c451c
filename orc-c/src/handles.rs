//! Handles: the numbers by which C knows our values.
//!
//! ```text
//!  63       48 47                                0
//!  |  "UR"    |  number, never used twice * 16   |
//! ```
//!
//! A handle looks like a pointer and is none: the top bits are a mark, and no address of a program has them. All handles of the process
//! are in one table. So one that comes from elsewhere, was disposed of, or is of another kind is found out without reading
//! through it, and is an error that says which of the three it is.
//!
//! A value is dropped without the table's lock, and a call that uses one keeps it alive.

use std::any::Any;
use std::collections::HashMap;
use std::sync::LazyLock;

use uruk::core::sync::{Arc, Mutex};

use crate::errors::Problem;

/// A handle as C has it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) const NULL: Self = Self(0);

    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Handles of symbols' names are addresses; `names.rs` has their table.
    pub(crate) fn of_address(address: usize) -> Self {
        Self(address)
    }

    pub(crate) fn address(self) -> usize {
        self.0
    }
}

/// A value that C has handles of.
pub(crate) trait Handled: Any + Send + Sync {
    /// Its kind, in messages: the name of C's type.
    const KIND: &'static str;
}

struct Entry {
    kind: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Handle, Entry>,
    /// How many handles there were.
    given: usize,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

const MARK: usize = 0x5552 << 48;

/// A new handle of `value`.
pub(crate) fn give<T: Handled>(value: T) -> Handle {
    let value = Arc::new(value);
    let mut table = TABLE.lock();
    table.given += 1;
    let handle = Handle(MARK | table.given << 4);
    table.entries.insert(handle, Entry { kind: T::KIND, value });
    handle
}

/// The value of a handle.
pub(crate) fn get<T: Handled>(handle: Handle) -> Result<Arc<T>, Problem> {
    let table = TABLE.lock();
    let found = table.entries.get(&handle).map(|entry| (entry.kind, entry.value.clone()));
    drop(table);
    let (kind, value) = found.ok_or_else(|| unknown::<T>(handle))?;
    value.downcast().map_err(|_| other_kind::<T>(kind))
}

/// The value of a handle, which ends.
pub(crate) fn take<T: Handled>(handle: Handle) -> Result<Arc<T>, Problem> {
    let mut table = TABLE.lock();
    let kind = table.entries.get(&handle).map(|entry| entry.kind);
    let is_of_kind = table.entries.get(&handle).is_some_and(|entry| entry.value.is::<T>());
    let entry = if is_of_kind { table.entries.remove(&handle) } else { None };
    drop(table);
    match (entry, kind) {
        (Some(entry), _) => entry.value.downcast().map_err(|_| other_kind::<T>(entry.kind)),
        (None, Some(kind)) => Err(other_kind::<T>(kind)),
        (None, None) => Err(unknown::<T>(handle)),
    }
}

/// Ends a handle of any kind. Nothing happens if it has ended.
pub(crate) fn end(handle: Handle) {
    let entry = TABLE.lock().entries.remove(&handle);
    drop(entry);
}

/// As [`take`], for the value itself.
pub(crate) fn take_whole<T: Handled>(handle: Handle) -> Result<T, Problem> {
    Arc::into_inner(take::<T>(handle)?)
        .ok_or_else(|| Problem::new(format_args!("{} is in use by another call", T::KIND)))
}

fn unknown<T: Handled>(handle: Handle) -> Problem {
    let kind = T::KIND;
    Problem::new(match handle.0 {
        0 => format!("{kind} is null"),
        number if number & (0xffff << 48) == MARK => {
            format!("{kind} was disposed of, or handed over, before")
        }
        number => format!(
            "{kind} at {number:#x} is not one of liburuk_orc: another library has made it, or C++ code"
        ),
    })
}

fn other_kind<T: Handled>(kind: &str) -> Problem {
    Problem::new(format_args!("a handle of kind {kind} stands where {} is wanted", T::KIND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Tea(u32);
    #[derive(Debug)]
    struct Milk;

    impl Handled for Tea {
        const KIND: &'static str = "Tea";
    }

    impl Handled for Milk {
        const KIND: &'static str = "Milk";
    }

    #[test]
    fn a_handle_is_good_for_its_kind_until_it_is_taken() {
        let (tea, milk) = (give(Tea(7)), give(Milk));
        assert_ne!(tea, milk);
        assert_eq!(get::<Tea>(tea).map(|tea| tea.0).ok(), Some(7));
        let told = |problem: Problem| problem.to_string();
        assert_eq!(
            get::<Tea>(milk).map_err(told).unwrap_err(),
            "a handle of kind Milk stands where Tea is wanted"
        );
        assert_eq!(
            take::<Milk>(tea).map_err(told).unwrap_err(),
            "a handle of kind Tea stands where Milk is wanted"
        );
        let kept = get::<Tea>(tea).ok();
        assert_eq!(take_whole::<Tea>(tea).map_err(told).unwrap_err(), "Tea is in use by another call");
        drop(kept);
        assert_eq!(get::<Tea>(tea).map_err(told).unwrap_err(), "Tea was disposed of, or handed over, before");
        assert_eq!(get::<Tea>(Handle::NULL).map_err(told).unwrap_err(), "Tea is null");
        let foreign = get::<Tea>(Handle::of_address(0x1230)).map_err(told).unwrap_err();
        assert_eq!(
            foreign,
            "Tea at 0x1230 is not one of liburuk_orc: another library has made it, or C++ code"
        );
        assert!(take_whole::<Milk>(milk).is_ok());
    }
}
