//! The inputs and results of the phases of a link: decisions of the owner, services of the process, and the linked graph.

use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::graph::ObjectId;
use super::low::IsWantedLow;
use super::rename::Rename;
use super::tls::{TlsImage, TlsPlacement};
use crate::memory::FinalizedAlloc;
use crate::platform::Initializers;
use crate::runtime::tls::{NotStatic, TlsResolvers};

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
}

impl Default for LinkOptions<'_> {
    fn default() -> Self {
        Self { rename: None, is_discarded: &|_| false, binds_section_bounds: true, is_wanted_low: None }
    }
}

/// Services of the process for a link.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct LinkEnvironment<'e> {
    /// The content of the descriptor at an address, for objects that reach a hidden thread-local variable of another object by its offset
    /// in their common module. `None` if the address is unknown.
    pub tls_placement: &'e dyn Fn(ExecutorAddr) -> Option<TlsPlacement>,
    /// How far from the thread pointer a variable is, on every thread there is and will be; or why it is not.
    pub tls_distance: &'e dyn Fn(TlsPlacement) -> Result<i64, NotStatic>,
    /// The functions behind TLS descriptors.
    pub tls_resolvers: TlsResolvers,
    /// The target of the first call of an indirect function; `ifunc.rs` says what it must do.
    pub ifunc_thunk: ExecutorAddr,
}

impl Default for LinkEnvironment<'_> {
    /// No process: nothing is known of any thread-local variable, and every function is at address zero.
    fn default() -> Self {
        Self {
            tls_placement: &|_| None,
            tls_distance: &|_| Err(NotStatic::Unknown),
            tls_resolvers: TlsResolvers::default(),
            ifunc_thunk: ExecutorAddr::NULL,
        }
    }
}

/// A linked graph.
#[derive(Debug)]
pub struct Linked {
    /// The memory; dropping it unmaps the code.
    pub alloc: FinalizedAlloc,
    /// The addresses of its segments.
    pub ranges: Box<[Range<u64>]>,
    /// How exceptions find their way through the code.
    pub unwind: Option<UnwindTable>,
    /// The thread-local image and where it was placed.
    pub tls: Option<(TlsImage, TlsPlacement)>,
    /// The functions of each object that run before and after the program, in the order the objects were merged in.
    pub initializers: Vec<Initializers>,
    /// The descriptors of functions that choose their implementation, with their objects, which are numbered as they were merged. Each
    /// binds on its first call. To bind it earlier, pass the descriptor to [`bind`](crate::runtime::ifunc::bind).
    pub indirect_functions: Vec<(ObjectId, ExecutorAddr)>,
    /// Where the sections whose name is a C identifier lie.
    pub section_ranges: Vec<SectionRange>,
    /// How much memory went where.
    pub sizes: LinkSizes,
}

/// Unwind information of a linked graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// The code it covers.
    pub code: Range<u64>,
    /// The sorted index, which begins with the distance to `.eh_frame`.
    pub eh_frame_hdr: u64,
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
