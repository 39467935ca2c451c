//! The wishes of readers: notes that cost more than a note, and to be called when there is something new.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::names::Name;
use crate::note::{Entry, Kind};
use crate::recording::{is_here, is_on, note};
use crate::sync::details;

/// Notes that cost more than a note, because something has to be measured or counted for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Detail {
    /// [`Kind::Pass`]: LLVM's passes are timed.
    Passes = 1,
    /// [`Kind::Functions`]: functions are counted while LLVM works on a module.
    Functions = 2,
}

/// Has these noted from here on, until the process ends.
pub fn ask_for(detail: Detail) {
    details::add(detail as u32);
}

/// Whether these are noted: the recording is on, and a reader has asked for them.
pub fn is_asked_for(detail: Detail) -> bool {
    is_on() && details::all() & detail as u32 != 0
}

type Look = Box<dyn Fn() + Send + Sync>;

static LOOK: OnceLock<Look> = OnceLock::new();

/// Has `look` called on each thread that has ended a phase, so that a reader without a thread of its own comes before notes are overwritten. A
/// process has one such reader: the first.
///
/// `look` decides whether it is time: it is called often. It should not wait. A panic goes no further.
pub fn after_phases(look: impl Fn() + Send + Sync + 'static) {
    drop(LOOK.set(Box::new(look)));
}

/// Notes that a phase begins on this thread.
#[cold]
pub fn phase_begun(name: Name) {
    note(|| Entry::new(Kind::PhaseBegun).named(name));
}

/// Notes that the innermost phase of this thread ends.
#[cold]
pub fn phase_ended(name: Name) {
    note(|| Entry::new(Kind::PhaseEnded).named(name));
    if let Some(look) = LOOK.get().filter(|_| is_here()) {
        // A phase may end because of another panic.
        drop(catch_unwind(AssertUnwindSafe(look)));
    }
}
