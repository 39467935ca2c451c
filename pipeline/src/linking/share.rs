//! Share: the resources of linked code in the process, and their owners.
//!
//! Objects that are linked together are one piece of memory, and each of them has a tracker of its own. So each tracker has a *share*: the
//! code is released with the last of the trackers. The record of one object's functions goes with the share of that object.
//!
//! ```text
//!   tracker of a ─▶ share ─▶ record of a                   tracker of b ─▶ share ─▶ record of b
//!                     └──────────▶ owned ─▶ code ◀───────────────────────────┘
//! ```
//!
//! The bytes of the code count for the tracker of one object, the first that is left.
//!
//! Holds: no record outlives the code it names. A share drops its record first. Functions that code has registered for its end run before
//! any of the code that is removed together is unmapped, or with the last of it ([`endings`]).

use std::any::Any;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{RemovalNumber, Resource, ResourceMemory};

use super::code::{Code, CodeRemoval};
use super::low::LowEntry;
use super::placements::NotedTls;
use crate::executor::{CodeNumber, Published};
use crate::platform::Recorded;
use crate::runtime::endings;

/// The resources of the objects of one link. Fields drop in order: first the code comes to its end and its memory goes, then what it
/// called.
pub(super) struct LinkedCode {
    pub(super) _tls: Option<NotedTls>,
    pub(super) published: Box<dyn Published>,
    /// Of the memory that goes with it.
    pub(super) bytes: u64,
    pub(super) _low_entries: Vec<Arc<LowEntry>>,
}

/// One object's share of its code: a resource of its tracker. The publisher of the object keeps a handle.
///
/// Emptied by the removal of the tracker or by a refused emission, if that comes first.
#[derive(Clone)]
pub(super) struct Share {
    held: Arc<Hold>,
    /// The removal that has begun.
    removal: Option<RemovalNumber>,
    /// Whether the functions that the code has registered for its end run with that.
    ends: bool,
}

/// Code as long as it has trackers. Holders may keep it longer, and so do threads that are inside when it goes.
pub(super) struct Owned {
    code: Arc<Code>,
    /// `None` for code that is there until the process ends.
    number: Option<CodeNumber>,
    /// The removal that it goes with.
    removal: Option<RemovalNumber>,
    /// The shares that are left.
    shares: Mutex<SharesLeft>,
}

/// Shares are numbered; the memory of the code counts for the first that is left.
#[derive(Default)]
struct SharesLeft {
    first: usize,
    /// Those behind it that are gone.
    gone: BTreeSet<usize>,
}

/// The code, until the share has let go of it.
struct Hold(Mutex<Option<Held>>);

/// Fields drop in order: a function is no longer handed out when its code goes.
struct Held {
    recorded: Option<Recorded>,
    code: Arc<Owned>,
    /// Among the shares of the code.
    number: usize,
}

impl Share {
    /// The share of that `number` among those of the code.
    pub(super) fn new(recorded: Option<Recorded>, code: &Arc<Owned>, number: usize) -> Self {
        let held = Held { recorded, code: code.clone(), number };
        Self { held: Arc::new(Hold(Mutex::new(Some(held)))), removal: None, ends: false }
    }

    /// Releases code that is not published. The shares of others stay.
    pub(super) fn give_up(&self) {
        if let Some(code) = self.number() {
            endings::give_up(code);
        }
        self.let_go();
    }

    fn let_go(&self) {
        self.let_go_of(|_| ());
    }

    /// Lets go; of the code, when it was the last one.
    fn let_go_of(&self, last: impl FnOnce(&Code)) {
        let held = self.held.0.lock().take();
        let Some(Held { recorded, code, number }) = held else { return };
        drop(recorded);
        code.shares.lock().leave(number);
        if let Some(mut owned) = Arc::into_inner(code) {
            owned.removal = self.removal;
            last(&owned.code);
        }
    }

    /// The number of the code, if it is held and may end before the process does.
    fn number(&self) -> Option<CodeNumber> {
        self.held.0.lock().as_ref().and_then(|held| held.code.number)
    }

    /// Runs what the code has registered for its end, if that has come. The first of those that are removed together does it for all:
    /// they are all still there.
    fn end(&self) {
        if let Some(removal) = self.removal.filter(|_| self.ends) {
            endings::run_of_removal(removal);
        }
    }

    /// Lets go for a removal that asks for more, or that waits until the code is gone.
    fn remove_by(&self, removal: CodeRemoval<'_>) {
        self.end();
        self.let_go_of(|code| code.let_go(removal));
    }
}

impl Owned {
    pub(super) fn new(code: Arc<Code>, number: Option<CodeNumber>) -> Arc<Self> {
        Arc::new(Self { code, number, removal: None, shares: Mutex::default() })
    }
}

impl SharesLeft {
    fn leave(&mut self, number: usize) {
        self.gone.insert(number);
        while self.gone.remove(&self.first) {
            self.first += 1;
        }
    }
}

impl ResourceMemory for Hold {
    fn bytes(&self) -> u64 {
        let held = self.0.lock();
        let counts = |held: &&Held| held.code.shares.lock().first == held.number;
        held.as_ref().filter(counts).map_or(0, |held| held.code.code.bytes())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.code.retire(self.removal);
    }
}

/// Removes a resource of a tracker: linked code in the way that is asked for, anything else in its own.
///
/// # Errors
/// Those of [`Resource::remove`].
pub(super) fn remove_resource(
    resource: Box<dyn Resource>,
    removal: CodeRemoval<'_>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    if !(&*resource as &dyn Any).is::<Share>() {
        return resource.remove();
    }
    if let Ok(share) = (resource as Box<dyn Any>).downcast::<Share>() {
        share.remove_by(removal);
    }
    Ok(())
}

impl Resource for Share {
    fn memory(&self) -> Option<Arc<dyn ResourceMemory>> {
        Some(self.held.clone())
    }

    fn prepare_removal(&mut self, removal: RemovalNumber) {
        self.removal = Some(removal);
        if let Some(code) = self.number() {
            endings::leave(code, removal);
            self.ends = true;
        }
    }

    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.end();
        self.let_go();
        Ok(())
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("is_held", &self.held.0.lock().is_some()).finish()
    }
}
