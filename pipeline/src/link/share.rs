//! Share: what linked code occupies in the process, and who it belongs to.
//!
//! Objects that are linked together are one piece of memory, and each of them has a tracker of its own. So each tracker has a
//! *share*: the trackers let the code go with the last of them. What is recorded of one object, and would be handed out to run, goes
//! with the share of that object.
//!
//! ```text
//!   tracker of a ─▶ share ─▶ what is recorded of a         tracker of b ─▶ share ─▶ what is recorded of b
//!                     └──────────▶ owned ─▶ code ◀───────────────────────────┘
//! ```
//!
//! Holds: nothing recorded outlives the code it names. A share lets go of its record first.

use std::any::Any;
use std::error::Error;
use std::fmt;

use uruk_core::Resource;
use uruk_core::sync::{Arc, Mutex};

use super::code::{Code, CodeRemoval};
use super::low::LowEntry;
use super::placements::PlacedTls;
use crate::memory::FinalizedAlloc;
use crate::platform::Recorded;
use crate::runtime::unwind::UnwindRegistration;

/// What the objects of one link occupy in the process. Fields drop in order: first nobody can find the code any more, then
/// its memory goes.
pub(super) struct LinkedCode {
    pub(super) _unwind: Option<UnwindRegistration>,
    pub(super) _tls: Option<PlacedTls>,
    /// Always there, except in tests.
    pub(super) _memory: Option<FinalizedAlloc>,
    pub(super) _low_entries: Vec<Arc<LowEntry>>,
}

/// One object's share of its code: a resource of its tracker, of which whoever publishes the object keeps a handle.
///
/// Emptied by whatever comes first, the removal of the tracker or an emission that is refused.
#[derive(Clone)]
pub(super) struct Share(Arc<Mutex<Option<Held>>>);

/// Code as long as it has trackers. Others may keep it longer.
pub(super) struct Owned(Arc<Code>);

/// Fields drop in order: a function is no longer handed out when its code goes.
struct Held {
    recorded: Option<Recorded>,
    code: Arc<Owned>,
}

impl Share {
    pub(super) fn new(recorded: Option<Recorded>, code: &Arc<Owned>) -> Self {
        Self(Arc::new(Mutex::new(Some(Held { recorded, code: code.clone() }))))
    }

    /// Lets go of the code. What others share stays.
    pub(super) fn give_up(&self) {
        let held = self.0.lock().take();
        drop(held);
    }

    /// The same for a removal that asks for more, or that waits until the code is gone.
    fn remove_by(&self, removal: CodeRemoval<'_>) {
        let held = self.0.lock().take();
        let Some(Held { recorded, code }) = held else { return };
        drop(recorded);
        if let Some(Owned(code)) = Arc::into_inner(code) {
            code.let_go(removal);
        }
    }
}

impl Owned {
    pub(super) fn new(code: Arc<Code>) -> Arc<Self> {
        Arc::new(Self(code))
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
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.give_up();
        Ok(())
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("is_held", &self.0.lock().is_some()).finish()
    }
}
