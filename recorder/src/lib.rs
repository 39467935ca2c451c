#![doc = include_str!("../README.md")]

mod area;
mod clock;
#[cfg(not(uruk_loom))]
mod flight;
mod history;
mod layout;
mod memory;
mod names;
mod note;
mod outcome;
mod path;
mod reader;
mod recording;
mod ring;
mod script;
mod sums;
mod sync;
mod wanted;

#[cfg(not(uruk_loom))]
pub use flight::{Flight, FlightError};
pub use history::{ClaimHistory, History, LookupHistory, NotedId};
pub use names::{Name, NameCell};
pub use note::{Entry, Kind, Note, ThreadId};
pub use outcome::{CacheEntry, TierEnd};
pub use path::{PathStep, PathWork};
pub use reader::{Batch, OpenError, Reader};
pub use recording::{EnableError, Options, disable, enable, is_on, name, note, write_name};
pub use script::Script;
pub use sums::{CacheMiss, CacheSums, PassSum, StageSum, Sums, TierSum};
pub use wanted::{Detail, after_phases, ask_for, is_asked_for, phase_begun, phase_ended};

/// The parts that a model drives.
#[cfg(uruk_loom)]
pub mod parts;

/// The name of a text that stands in code, which is written the first time. None unless the recording is on.
///
/// ```
/// let phase = uruk_recorder::static_name!("ir.optimize");
/// # assert_eq!(phase, uruk_recorder::Name::NONE);
/// ```
#[macro_export]
macro_rules! static_name {
    ($text:expr) => {{
        #[cfg(not(uruk_loom))]
        {
            static NAME: $crate::NameCell = $crate::NameCell::new();
            $crate::name(&NAME, $text)
        }
        #[cfg(uruk_loom)]
        $crate::Name::NONE
    }};
}
