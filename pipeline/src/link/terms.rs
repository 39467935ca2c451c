//! The inputs and results of the phases of a link: decisions of the owner, facts about the place where the code will run, and the linked graph.

use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::graph::ObjectId;
use super::low::IsWantedLow;
use super::order::CodeOrder;
use super::rebase::Rebases;
use super::rename::Rename;
use crate::executor::{Actions, Initializers, NotStatic, RuntimeEntries, TlsPlacement};

/// Decisions of an object's owner about its link.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct LinkOptions<'o> {
    /// The names in the program of names in the graph. The other options, and all messages, use the new names.
    pub rename: Option<Rename<'o>>,
    /// Whether a definition of the object does not count, because another unit defines the name.
    pub is_discarded: &'o dyn Fn(&str) -> bool,
    /// Whether `__start_X` and `__stop_X` mean the sections `X` of this graph, if it has any. If not, they are
    /// left to the lookup.
    pub binds_section_bounds: bool,
    /// Whether objects that were built without position-independent code may need a name below 2 GiB. `None` where there
    /// are no such objects but perhaps this one.
    pub is_wanted_low: Option<IsWantedLow<'o>>,
    /// Whether the graph may be moved after it was linked. The link then notes which fields that changes, and code reaches all others'
    /// symbols through tables and stubs.
    pub is_rebasable: bool,
    /// Functions that come first, and whether others go.
    pub order: Option<CodeOrder<'o>>,
}

impl Default for LinkOptions<'_> {
    fn default() -> Self {
        Self {
            rename: None,
            is_discarded: &|_| false,
            binds_section_bounds: true,
            is_wanted_low: None,
            is_rebasable: false,
            order: None,
        }
    }
}

/// Facts about the place where the code will run.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct LinkEnvironment<'e> {
    /// The content of the descriptor at an address, for objects that reach a hidden thread-local variable of another object by its offset
    /// in their common module. `None` if the address is unknown.
    pub tls_placement: &'e dyn Fn(ExecutorAddr) -> Option<TlsPlacement>,
    /// How far from the thread pointer a variable is, on every thread there is and will be; or why it is not.
    pub tls_distance: &'e dyn Fn(TlsPlacement) -> Result<i64, NotStatic>,
    /// The functions that linked code calls without naming them.
    pub entries: RuntimeEntries,
}

impl Default for LinkEnvironment<'_> {
    /// No place: nothing is known of any thread-local variable, and every function is at address zero.
    fn default() -> Self {
        Self {
            tls_placement: &|_| None,
            tls_distance: &|_| Err(NotStatic::Unknown),
            entries: RuntimeEntries::default(),
        }
    }
}

/// A linked graph, besides its bytes. Nothing has happened to the place where it will run: [`Executor::publish`] does that.
///
/// [`Executor::publish`]: crate::executor::Executor::publish
#[derive(Debug)]
pub struct Linked {
    /// The names of its objects, for messages.
    pub name: Box<str>,
    /// The addresses of its segments.
    pub ranges: Arc<[Range<u64>]>,
    /// The steps of the place before the code can run, as far as the graph says so.
    pub actions: Actions,
    /// The functions of each object that run before and after the program, in the order the objects were merged in.
    pub initializers: Vec<Initializers>,
    /// The descriptors of functions that choose their implementation, with their objects, which are numbered as they were merged. Each
    /// binds on its first call. To bind it earlier, pass the descriptor to [`bind`](crate::runtime::ifunc::bind).
    pub indirect_functions: Vec<(ObjectId, ExecutorAddr)>,
    /// Where the sections whose name is a C identifier lie.
    pub section_ranges: Vec<SectionRange>,
    /// How much memory went where.
    pub sizes: LinkSizes,
    /// The fields that change if the graph lies elsewhere, if it was [linked for that](LinkOptions::is_rebasable).
    pub rebases: Option<Rebases>,
}

/// The extent of all sections of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionRange {
    /// The sections' name.
    pub name: Box<str>,
    /// First address, and one past the last.
    pub range: Range<u64>,
}

/// Bytes by segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSizes {
    /// Code and stubs.
    pub code_bytes: u64,
    /// Constants, unwind tables and thread-local images.
    pub read_only_bytes: u64,
    /// Writable data and the global offset table.
    pub data_bytes: u64,
    /// Writable data that starts as zero.
    pub zero_fill_bytes: u64,
}
