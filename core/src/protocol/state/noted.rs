//! Notes of the protocol's acts, with the ids that are known under the lock.
//!
//! A note costs a load while nothing is recorded. The ids of a claim, a row and a query lead from the end of a lookup back to its beginning:
//! `uruk_recorder` has the kinds.

use uruk_recorder::{Entry, Kind, Name};

use crate::SymbolName;
use crate::ids::{ClaimId, DylibId, Id, QueryId};

/// The common part of a session's notes.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    session: u16,
    /// The claim whose act the transaction is: it asks, resolves, emits or fails.
    acting: u64,
}

impl Noted {
    /// Of a session that has this number in notes.
    pub(crate) fn of(session: u16) -> Self {
        Self { session, acting: 0 }
    }

    /// The transaction is an act of this claim, until the next begins; of none if it only begins.
    #[inline]
    pub(crate) fn act_for(&mut self, claim: Option<ClaimId>) {
        self.acting = claim.map_or(0, Id::noted);
    }

    /// Notes an act: its second number is the claim whose act it is.
    #[inline(always)]
    pub(crate) fn act(&self, kind: Kind, id: impl Id, name: Option<&SymbolName>) {
        uruk_recorder::note(|| self.entry(kind, name).with(id.noted(), self.acting));
    }

    /// Notes something that has a second number of its own.
    #[inline(always)]
    pub(crate) fn with(
        &self,
        kind: Kind,
        id: impl Id,
        number: impl FnOnce() -> u64,
        name: Option<&SymbolName>,
    ) {
        uruk_recorder::note(|| self.entry(kind, name).with(id.noted(), number()));
    }

    /// Notes that a query waits, and on whose behalf.
    pub(crate) fn lodged(&self, query: QueryId, asked_by: Option<ClaimId>, name: Option<&SymbolName>) {
        self.with(Kind::Lodged, query, || asked_by.map_or(0, Id::noted), name);
    }

    /// Notes that there is a dylib.
    pub(crate) fn dylib(&self, dylib: DylibId, name: &str) {
        uruk_recorder::note(|| {
            let named = Entry::new(Kind::Dylib).named(uruk_recorder::write_name(name));
            named.of(self.session).with(dylib.noted(), 0)
        });
    }

    #[cold]
    fn entry(&self, kind: Kind, name: Option<&SymbolName>) -> Entry {
        let name = name.map_or(Name::NONE, |name| uruk_recorder::write_name(name.as_str()));
        Entry::new(kind).of(self.session).named(name)
    }
}
