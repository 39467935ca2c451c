//! [`View`]: the generations of a pack as this process knows them. It may be older than the files, and then misses more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::directory::Directory;
use super::format::PackSlot;
use super::generation::Generation;
use super::index::PackIndex;

/// How long a miss counts for as true as one that looked at the files.
const PAUSE: Duration = Duration::from_millis(1);

/// The two newest generations that can be read.
#[derive(Debug)]
pub(super) struct View {
    /// The newest first.
    live: Vec<Live>,
    looked: Instant,
    /// For readers, files are neither opened, nor closed, nor checked for new slots.
    is_frozen: bool,
}

/// A generation, and where its entries lie.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) generation: Arc<Generation>,
    pub(super) index: PackIndex,
}

/// Where an entry may lie.
#[derive(Clone, Debug)]
pub(super) struct FoundEntry {
    pub(super) generation: Arc<Generation>,
    pub(super) slot: PackSlot,
    pub(super) is_newest: bool,
}

/// How many generations there are, except while one is about to be removed.
const GENERATIONS: usize = 2;

impl View {
    /// Of nothing.
    pub(super) fn new() -> Self {
        Self { live: Vec::with_capacity(GENERATIONS), looked: Instant::now(), is_frozen: false }
    }

    pub(super) fn find(&self, tag: u64) -> [Option<FoundEntry>; GENERATIONS] {
        let mut found = [const { None }; GENERATIONS];
        let mut places = found.iter_mut();
        for (at, live) in self.live.iter().enumerate() {
            if let Some(slot) = live.index.find(tag)
                && let Some(place) = places.next()
            {
                *place = Some(FoundEntry { generation: live.generation.clone(), slot, is_newest: at == 0 });
            }
        }
        found
    }

    /// Whether a miss had better look at the files.
    pub(super) fn is_due(&self) -> bool {
        !self.is_frozen && self.looked.elapsed() >= PAUSE
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Stays unchanged from now on, except for writes of this process.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// The newest generation.
    pub(super) fn newest(&self) -> Option<&Live> {
        self.live.first()
    }

    /// All generations, the newest first.
    pub(super) fn live(&self) -> &[Live] {
        &self.live
    }

    /// Forgets everything, so that the next look begins with the directory.
    pub(super) fn forget(&mut self) {
        self.live.clear();
    }

    /// Looks at the files. An unreadable file counts as empty.
    pub(super) fn refresh(&mut self, directory: &Directory, access: OFlags) {
        if let Some(newest) = self.live.first_mut() {
            // If the index cannot be read now, its new slots count as not written, for now.
            let _ = newest.generation.read_index(&mut newest.index);
        }
        if self.newest().is_none_or(|newest| newest.index.is_sealed()) {
            self.list(directory, access);
        }
        self.looked = Instant::now();
    }

    /// Opens the newest generations that the directory has.
    fn list(&mut self, directory: &Directory, access: OFlags) {
        let Ok(numbers) = directory.generations() else { return };
        let mut before = std::mem::take(&mut self.live);
        for number in numbers.into_iter().rev() {
            // After everything was removed numbers begin anew.
            let is_known = |live: &Live| live.generation.number == number && live.has_a_name();
            let known = before.iter().position(is_known);
            let live = match known {
                Some(at) => Some(before.swap_remove(at)),
                None => Live::open(directory, number, access),
            };
            self.live.extend(live);
            if self.live.len() == GENERATIONS {
                break;
            }
        }
    }
}

impl Live {
    fn open(directory: &Directory, number: u64, access: OFlags) -> Option<Self> {
        let generation = Generation::open(directory, number, access)
            .or_else(|| Generation::open(directory, number, OFlags::RDONLY))?;
        let index = generation.load_index().ok()?;
        Some(Self { generation: Arc::new(generation), index })
    }
    fn has_a_name(&self) -> bool {
        self.generation.extent().is_ok_and(|extent| !extent.is_unlinked)
    }
}
