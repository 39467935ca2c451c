//! Initial-exec code whose variable is at no fixed distance: the load of the distance becomes a jump to a detour.
//!
//! Executables' code reaches the variables of shared libraries in this way, which natively are all there before the process starts. The
//! detour itself is the architecture's.

use rustc_hash::FxHashMap;

use super::graph::{BlockId, SymbolId};
use crate::arch::DistanceLoad;

/// An instruction that may have to take a detour.
#[derive(Clone, Copy, Debug)]
pub(super) struct DetourSite {
    pub(super) block: BlockId,
    /// Of the field, in the block.
    pub(super) offset: u64,
    pub(super) symbol: SymbolId,
    pub(super) load: DistanceLoad,
}

/// The instructions of a graph that may have to take one, each once.
#[derive(Debug, Default)]
pub(super) struct Detours {
    sites: Vec<DetourSite>,
    by_place: FxHashMap<(BlockId, u64), u64>,
}

impl Detours {
    pub(super) fn add(&mut self, site: DetourSite) {
        let next = self.sites.len() as u64;
        self.by_place.entry((site.block, site.offset)).or_insert_with(|| {
            self.sites.push(site);
            next
        });
    }

    /// The index of the detour of the field at `offset`.
    pub(super) fn get(&self, block: BlockId, offset: u64) -> Option<u64> {
        self.by_place.get(&(block, offset)).copied()
    }

    /// The instructions, in the order of their indices.
    pub(super) fn sites(&self) -> &[DetourSite] {
        &self.sites
    }

    pub(super) fn len(&self) -> u64 {
        self.sites.len() as u64
    }
}
