//! Owners: the code that an address belongs to, and its keepers.
//!
//! The destructor of a thread-local object runs when its thread ends, which may be long after its code was removed. Its *pin* keeps
//! that code, and all that it may call, as it is when the pin is made. All of that is linked by then, for code runs only when all that
//! it needs is there.

use std::any::Any;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Weak;

use rustc_hash::{FxBuildHasher, FxHashMap};
use uruk_core::RemovalNumber;
use uruk_core::sync::Arc;

use super::table::ExitKey;
use super::{CodeNumber, Home};
use crate::code_ranges::{CodeRanges, give_back};

/// Linked code, as its keepers see it.
pub(crate) trait CodeKeeper: Send + Sync {
    /// Keeps all code that this code may call.
    fn hold_all(&self) -> Box<dyn Any + Send + Sync>;
}

/// Keeps code in its place.
pub(crate) type KeptCode = Arc<dyn CodeKeeper>;

/// A piece of linked code that the process has.
pub(crate) struct Owner {
    pub(super) home: Home,
    ranges: Arc<[Range<u64>]>,
    /// How many hold it and have not begun to let go.
    pub(super) shares: usize,
    /// The removal that the last of them goes with.
    pub(super) removal: Option<RemovalNumber>,
    /// `None` until it is known, which is before it can run.
    pub(super) code: Option<Weak<dyn CodeKeeper>>,
    /// Shared by the threads that need it.
    pub(super) pin: Weak<Pin>,
    /// Its entries in the table.
    pub(super) entries: BTreeSet<ExitKey>,
    /// Whether the C library keeps functions of it.
    pub(super) is_known_to_library: bool,
}

impl Owner {
    /// Keeps the code, unless it is being unmapped.
    pub(super) fn hold(&self) -> Option<KeptCode> {
        self.code.as_ref()?.upgrade()
    }
}

/// Keeps a piece of code, and all that it may call.
pub(crate) struct Pin {
    _code: KeptCode,
    _all_it_may_call: Box<dyn Any + Send + Sync>,
}

impl Pin {
    pub(super) fn new(code: KeptCode) -> Self {
        Self { _all_it_may_call: code.hold_all(), _code: code }
    }
}

/// The code that the process has, by number and by address.
pub(super) struct Owners {
    by_number: FxHashMap<CodeNumber, Owner>,
    by_address: CodeRanges<CodeNumber>,
}

impl Owners {
    pub(super) const fn new() -> Self {
        Self { by_number: FxHashMap::with_hasher(FxBuildHasher), by_address: CodeRanges::new() }
    }

    pub(super) fn add(&mut self, number: CodeNumber, extent: super::CodeExtent) {
        let super::CodeExtent { home, ranges } = extent;
        self.by_address.add(&ranges, number);
        let (pin, entries) = (Weak::new(), BTreeSet::new());
        let owner = Owner {
            home,
            ranges,
            shares: 0,
            removal: None,
            code: None,
            pin,
            entries,
            is_known_to_library: false,
        };
        self.by_number.insert(number, owner);
    }

    pub(super) fn remove(&mut self, number: CodeNumber) -> Option<Owner> {
        let owner = self.by_number.remove(&number)?;
        give_back(&mut self.by_number);
        self.by_address.remove(&owner.ranges, |known| *known == number);
        Some(owner)
    }

    pub(super) fn get(&self, number: CodeNumber) -> Option<&Owner> {
        self.by_number.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: CodeNumber) -> Option<&mut Owner> {
        self.by_number.get_mut(&number)
    }

    /// Whose code or data lies at `address`.
    pub(super) fn at(&mut self, address: u64) -> Option<CodeNumber> {
        self.by_address.at(address).copied()
    }
}
