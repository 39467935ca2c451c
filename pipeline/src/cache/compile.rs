//! [`CompileCache`]: the cache of a layer that compiles: memory first, then the cache below, and one compile at a time for each key.

use std::time::{Duration, Instant};

use uruk_core::sync::{Arc, Latch, Mutex};

use super::counters::Counter;
use super::flights::{EnteredFlight, Flights};
use super::{Claim, Key, MemoryCache, Miss, ObjectCache};
use crate::object::ObjectBuffer;

/// Runs what it is given, which may wait, and lets others do this thread's work meanwhile. `false` if the thread may not wait
/// now: nothing has run then.
///
/// With a session that is `&|wait| session.blocking(|| wait()).is_ok()`.
pub type Blocking<'a> = dyn Fn(&mut dyn FnMut()) -> bool + 'a;

/// A cache in memory above another one, with one maker for each entry.
///
/// # Concurrency
/// Callable from any thread. Only [`get_or_make`](Self::get_or_make) waits, and not for ever.
#[derive(Debug)]
pub struct CompileCache {
    memory: MemoryCache,
    below: Option<Arc<dyn ObjectCache>>,
    flights: Flights<Key, ObjectBuffer>,
    process_wait_max: Duration,
    /// A key that another process makes, and was waited for in vain.
    given_up: Mutex<Option<Key>>,
    counts: CompileCounts,
}

#[derive(Debug, Default)]
struct CompileCounts {
    in_memory: Counter,
    stored: Counter,
    shared: Counter,
    made: Counter,
    waits_given_up: Counter,
}

/// Where entries came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileCacheStats {
    /// From memory.
    pub in_memory: u64,
    /// From the cache below.
    pub stored: u64,
    /// From another thread, which made them at the same time.
    pub shared: u64,
    /// They were made.
    pub made: u64,
    /// How often an entry was made because a wait for another maker took too long.
    pub waits_given_up: u64,
}

/// An entry, and where it came from.
#[derive(Clone, Debug)]
pub struct Obtained {
    /// The entry.
    pub object: ObjectBuffer,
    /// Where it came from.
    pub origin: Origin,
}

/// Where an entry came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was there.
    Stored,
    /// Another thread made it meanwhile.
    Shared,
    /// It was made, for this reason.
    Made(Miss),
}

/// For how long a thread waits for another one of its process, which goes on or waits as it does.
const THREAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// For how long a thread waits for another process, unless it is told otherwise. That one may be suspended, and be so for days.
const PROCESS_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a thread rests between two looks whether another process is done.
const REST: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(16);

impl CompileCache {
    /// Up to `memory_bytes` in memory, above `below`.
    pub fn new(memory_bytes: usize, below: Option<Arc<dyn ObjectCache>>) -> Self {
        Self {
            memory: MemoryCache::new(memory_bytes),
            below,
            flights: Flights::new(),
            process_wait_max: PROCESS_WAIT_MAX,
            given_up: Mutex::new(None),
            counts: CompileCounts::default(),
        }
    }

    /// The same, waiting at most `limit` for another process that makes an entry, instead of a second. It may be suspended.
    #[must_use]
    pub fn waiting_at_most(mut self, limit: Duration) -> Self {
        self.process_wait_max = limit;
        self
    }

    /// The cache below.
    pub fn below(&self) -> Option<&Arc<dyn ObjectCache>> {
        self.below.as_ref()
    }

    /// Where entries came from, as of now.
    pub fn stats(&self) -> CompileCacheStats {
        let CompileCounts { in_memory, stored, shared, made, waits_given_up } = &self.counts;
        CompileCacheStats {
            in_memory: in_memory.get(),
            stored: stored.get(),
            shared: shared.get(),
            made: made.get(),
            waits_given_up: waits_given_up.get(),
        }
    }

    /// The entry of a key. If there is none, `make` makes it, on this thread; of all threads and processes that want it, one does.
    /// The others wait, and make it themselves if that takes too long or fails.
    ///
    /// # Errors
    /// What `make` says. Nothing of the cache's is one.
    pub fn get_or_make<E>(
        &self,
        key: &Key,
        blocking: &Blocking<'_>,
        make: impl FnOnce() -> Result<ObjectBuffer, E>,
    ) -> Result<Obtained, E> {
        let miss = match self.get(key) {
            Ok(object) => return Ok(Obtained { object, origin: Origin::Stored }),
            Err(miss) => miss,
        };
        let leader = match self.flights.enter(*key, |told| self.wait(told, blocking)) {
            EnteredFlight::Landed(object) => {
                self.counts.shared.add(1);
                return Ok(Obtained { object, origin: Origin::Shared });
            }
            EnteredFlight::Leads(leader) => Some(leader),
            EnteredFlight::Alone => {
                self.counts.waits_given_up.add(1);
                None
            }
        };
        let claim = self.claim(key, blocking);
        // Another process that made the entry between the first look and the claim has stored it.
        let (object, origin) = match self.get(key) {
            Ok(object) => (object, Origin::Stored),
            Err(_) => {
                let object = make()?;
                self.counts.made.add(1);
                self.store(key, &object, claim);
                (object, Origin::Made(miss))
            }
        };
        if let Some(leader) = leader {
            leader.land(&object);
        }
        Ok(Obtained { object, origin })
    }

    fn store(&self, key: &Key, object: &ObjectBuffer, claim: Claim) {
        self.memory.put(key, object);
        if let Some(below) = &self.below {
            below.put_claimed(key, object, claim);
        }
    }

    /// Waits until another thread has told something, for a while.
    fn wait(&self, told: &Latch, blocking: &Blocking<'_>) {
        let until = Instant::now() + THREAD_WAIT_MAX;
        let left = || until.saturating_duration_since(Instant::now());
        blocking(&mut || {
            told.wait_while(&left);
        });
    }

    /// Waits for a while until no other process makes the entry. An entry that the process has written is seen then.
    fn claim(&self, key: &Key, blocking: &Blocking<'_>) -> Claim {
        let Some(below) = &self.below else { return Claim::none() };
        let claim = below.try_claim(key).or_else(|| {
            let mut claim = None;
            if !self.has_given_up(&**below) {
                blocking(&mut || claim = self.claim_in_time(&**below, key));
            }
            claim
        });
        below.refresh();
        claim.unwrap_or_else(|| {
            self.counts.waits_given_up.add(1);
            Claim::none()
        })
    }

    /// Whether a process that was waited for in vain still has what it had then. One that is suspended may have many keys, and costs one
    /// wait.
    fn has_given_up(&self, below: &dyn ObjectCache) -> bool {
        let Some(key) = *self.given_up.lock() else { return false };
        let is_let_go = below.try_claim(&key).is_some();
        if is_let_go {
            *self.given_up.lock() = None;
        }
        !is_let_go
    }

    fn claim_in_time(&self, below: &dyn ObjectCache, key: &Key) -> Option<Claim> {
        let (until, mut rest) = (Instant::now() + self.process_wait_max, REST);
        let nobody_opens_it = Latch::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *self.given_up.lock() = Some(*key);
                return None;
            }
            // The system has no wait for a byte of a file that ends.
            nobody_opens_it.wait_timeout(rest.min(left));
            if let Some(claim) = below.try_claim(key) {
                return Some(claim);
            }
            rest = (rest * 2).min(REST_MAX);
        }
    }
}

impl ObjectCache for CompileCache {
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss> {
        if let Ok(object) = self.memory.get(key) {
            self.counts.in_memory.add(1);
            return Ok(object);
        }
        let object = self.below.as_ref().ok_or(Miss::NotStored)?.get(key)?;
        self.counts.stored.add(1);
        self.memory.put(key, &object);
        Ok(object)
    }

    fn put(&self, key: &Key, object: &ObjectBuffer) {
        self.store(key, object, Claim::none());
    }

    fn put_claimed(&self, key: &Key, object: &ObjectBuffer, claim: Claim) {
        self.store(key, object, claim);
    }

    fn try_claim(&self, key: &Key) -> Option<Claim> {
        self.below.as_ref().map_or_else(|| Some(Claim::none()), |below| below.try_claim(key))
    }

    fn contains(&self, key: &Key) -> bool {
        self.memory.contains(key) || self.below.as_ref().is_some_and(|below| below.contains(key))
    }

    fn refresh(&self) {
        self.below.iter().for_each(|below| below.refresh());
    }

    fn flush(&self) {
        self.below.iter().for_each(|below| below.flush());
    }

    fn retire(&self) {
        self.below.iter().for_each(|below| below.retire());
    }
}
