#![doc = include_str!("sleep/README.md")]

use crossbeam_utils::CachePadded;
use uruk_core::sync::atomic::{AtomicU64, Ordering, fence};
use uruk_core::sync::{Condvar, Mutex, thread, weakened};

/// Counts of slots by state, and the place where their holders sleep.
#[derive(Debug)]
pub struct Sleep {
    counts: CachePadded<AtomicU64>,
    slots: u64,
    /// Permissions to leave `sleep`, issued and not yet taken.
    tokens: Mutex<u64>,
    token_issued: Condvar,
}

/// The action of [`Sleep::notify`], and the part left to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`Start` obliges the caller to start a thread"]
pub enum Wake {
    /// A thread searches already, or every slot is at work and will search when it is done.
    Nobody,
    /// A sleeper has been woken.
    Woken,
    /// A vacant slot now counts as searching: the caller starts a thread in it, or calls
    /// [`Sleep::start_failed`].
    Start,
}

/// How many slots are in each state; the rest are at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Held by a thread that waits for a token.
    pub sleeping: u64,
    /// Held by a thread that looks for an item.
    pub searching: u64,
    /// Held by no thread.
    pub vacant: u64,
}

/// The most slots that the word can count.
pub const SLOTS_MAX: usize = FIELD as usize;

/// How often the last searcher lets others go first.
const LINGER: usize = 32;

const SLEEPING: u64 = 1;
const SEARCHING: u64 = 1 << 16;
const VACANT: u64 = 1 << 32;
const FIELD: u64 = 0xffff;

impl Sleep {
    /// Creates the protocol for `slots` slots, all vacant.
    pub fn new(slots: usize) -> Self {
        assert!((1..=SLOTS_MAX).contains(&slots), "{slots} slots do not fit the word; 1 to {SLOTS_MAX} do");
        let slots = slots as u64;
        Self {
            counts: CachePadded::new(AtomicU64::new(slots * VACANT)),
            slots,
            tokens: Mutex::new(0),
            token_issued: Condvar::new(),
        }
    }

    /// Ensures that a thread looks at the queues. Called after an item has been pushed.
    ///
    /// # Cost
    /// One fence and one load unless a thread has to be woken or started.
    pub fn notify(&self) -> Wake {
        self.notify_if(|| true)
    }

    /// The same for an item that a limit may hold back: whether it `may_start` is asked behind the fence. If it may not, the thread
    /// that lifts the limit looks.
    pub fn notify_if(&self, may_start: impl FnOnce() -> bool) -> Wake {
        if !weakened("sleep::notifies_without_fence") {
            // ordering[parking-dekker]: SeqCst. Pairs with the fence in `look_after`: either the look that
            // follows that one sees our push, or our load sees the change of the word that precedes it. Model:
            // loom-tests/tests/models/sleep.rs, `a_push_and_a_second_look_cannot_miss_each_other`.
            fence(Ordering::SeqCst);
        }
        if may_start() { self.call() } else { Wake::Nobody }
    }

    fn call(&self) -> Wake {
        let mut word = self.load();
        loop {
            let counts = Counts::of(word);
            let (next, wake) = if counts.searching > 0 {
                return Wake::Nobody;
            } else if counts.sleeping > 0 {
                (word - SLEEPING + SEARCHING, Wake::Woken)
            } else if counts.vacant > 0 {
                (word - VACANT + SEARCHING, Wake::Start)
            } else {
                return Wake::Nobody;
            };
            match self.exchange(word, next) {
                Ok(()) => {
                    if wake == Wake::Woken {
                        self.issue_tokens(1);
                    }
                    return wake;
                }
                Err(now) => word = now,
            }
        }
    }

    /// At work → searching.
    pub fn start_searching(&self) {
        // Relaxed: a producer that sees this searcher relies on the look that ends the search, not on its beginning.
        self.counts.fetch_add(SEARCHING, Ordering::Relaxed);
    }

    /// Searching → at work. `waiting` says whether an item waits in any queue.
    pub fn found(&self, waiting: impl FnOnce() -> bool) -> Wake {
        let before = self.change(|word| word - SEARCHING);
        if Counts::of(before).searching > 1 {
            return Wake::Nobody;
        }
        self.notify_after(waiting, weakened("pool::last_searcher_leaves_without_a_look"))
    }

    /// A thread that holds no slot has lifted a limit. `waiting` says whether an item waits in any queue.
    pub fn lifted(&self, waiting: impl FnOnce() -> bool) -> Wake {
        self.notify_after(waiting, weakened("pool::lifts_without_a_look"))
    }

    /// Searching. Lets other threads have the processor a few times before the last searcher sleeps; says whether there is a `reason`
    /// to search again.
    ///
    /// A caller that is answered often asks again at once. To wake a thread takes longer than most tasks, and tens of
    /// microseconds if its processor has gone to sleep meanwhile. Only one thread lingers: producers rely on it, and wake no
    /// other.
    pub fn linger(&self, reason: impl Fn() -> bool) -> bool {
        // No claim depends on it, and a model would follow each look.
        if cfg!(any(uruk_loom, uruk_shuttle)) {
            return false;
        }
        for _ in 0..LINGER {
            if self.counts().searching > 1 {
                return false;
            }
            if reason() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    /// Searching → sleeping → searching. Returns when there is reason to search again, and says whether
    /// the thread waited for it.
    ///
    /// `reason` says whether an item waits in any queue, or the pool closes; it is asked after the thread has been
    /// counted as sleeping.
    pub fn sleep(&self, reason: impl FnOnce() -> bool) -> bool {
        self.change(|word| word - SEARCHING + SLEEPING);
        if look_after(reason, weakened("pool::sleeps_without_a_second_look")) == Some(true)
            && self.try_change(|c| c.sleeping > 0, |w| w - SLEEPING + SEARCHING)
        {
            return false;
        }
        // Either nothing waits, or someone has already taken this thread off the count and owes it a token.
        self.take_token();
        true
    }

    /// At work → vacant: the thread is about to block. `waiting` says whether an item waits in any queue.
    ///
    /// The slot must lie in the pool's list before this is called.
    pub fn vacate(&self, waiting: impl FnOnce() -> bool) -> Wake {
        self.change(|word| word + VACANT);
        self.notify_after(waiting, weakened("pool::vacates_without_a_look"))
    }

    /// Searching → vacant: the thread is about to end. Says whether an item waits for which perhaps no thread was called; then
    /// this one tries to [`Sleep::occupy`] a slot again.
    pub fn stop(&self, waiting: impl FnOnce() -> bool) -> bool {
        self.change(|word| word - SEARCHING + VACANT);
        look_after(waiting, weakened("pool::stops_without_a_look")).unwrap_or(false)
    }

    /// Vacant → at work, if a slot is vacant. The caller then takes one from the pool's list.
    pub fn occupy(&self) -> bool {
        self.try_change(|counts| counts.vacant > 0, |word| word - VACANT)
    }

    /// Searching → vacant, after [`Wake::Start`] could not be obeyed. Says whether any slot is occupied: if not, no thread is
    /// left to take queued items.
    ///
    /// The slot must lie in the pool's list again before this is called.
    pub fn start_failed(&self) -> bool {
        let before = Counts::of(self.change(|word| word - SEARCHING + VACANT));
        // Producers may have relied on the thread that never was. Sleepers are woken without a look at the
        // queues: this is a rare path, and one needless search is cheaper than an argument.
        if before.sleeping > 0 && self.try_change(|c| c.sleeping > 0, |word| word - SLEEPING + SEARCHING) {
            self.issue_tokens(1);
        }
        before.vacant + 1 < self.slots
    }

    /// Turns every sleeper into a searcher. Called after the closed flag has been set.
    pub fn wake_all(&self) {
        if weakened("sleep::closes_by_a_look") && self.counts().sleeping == 0 {
            return;
        }
        // No fence: the word is changed here in any case. A thread that counts itself as sleeping later sees the closed flag by
        // `parking-word`, and one that did so earlier is woken.
        let before = self.change(|word| {
            let sleeping = Counts::of(word).sleeping;
            word - sleeping * SLEEPING + sleeping * SEARCHING
        });
        self.issue_tokens(Counts::of(before).sleeping);
    }

    /// How many slots are in each state at this moment.
    pub fn counts(&self) -> Counts {
        Counts::of(self.load())
    }

    fn load(&self) -> u64 {
        // Relaxed: the fence before it, or the exchange after it, orders what matters.
        self.counts.load(Ordering::Relaxed)
    }

    fn exchange(&self, word: u64, next: u64) -> Result<(), u64> {
        // ordering[parking-word]: AcqRel. Pairs with itself on other threads: a thread that changes the word sees what
        // earlier changers had put into their deques.
        let order = match weakened("sleep::changes_the_word_without_order") {
            true => Ordering::Relaxed,
            false => Ordering::AcqRel,
        };
        self.counts.compare_exchange_weak(word, next, order, Ordering::Relaxed).map(drop)
    }

    /// Changes the word; returns what it was.
    fn change(&self, next: impl Fn(u64) -> u64) -> u64 {
        let mut word = self.load();
        loop {
            match self.exchange(word, next(word)) {
                Ok(()) => return word,
                Err(now) => word = now,
            }
        }
    }

    fn try_change(&self, wanted: impl Fn(Counts) -> bool, next: impl Fn(u64) -> u64) -> bool {
        let mut word = self.load();
        while wanted(Counts::of(word)) {
            match self.exchange(word, next(word)) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Notifies if a look says that something waits.
    fn notify_after(&self, waiting: impl FnOnce() -> bool, blind: bool) -> Wake {
        if look_after(waiting, blind) == Some(true) { self.notify() } else { Wake::Nobody }
    }

    fn issue_tokens(&self, count: u64) {
        if count == 0 {
            return;
        }
        *self.tokens.lock() += count;
        // Notified after release, so that the woken thread does not run into the lock.
        for _ in 0..count {
            self.token_issued.notify_one();
        }
    }

    fn take_token(&self) {
        let mut tokens = self.tokens.lock();
        while *tokens == 0 {
            tokens = self.token_issued.wait(tokens);
        }
        *tokens -= 1;
    }
}

impl Counts {
    fn of(word: u64) -> Self {
        Self {
            sleeping: (word / SLEEPING) & FIELD,
            searching: (word / SEARCHING) & FIELD,
            vacant: (word / VACANT) & FIELD,
        }
    }
}

/// Looks for a reason after the word has been changed. `blind` is the run of a model that skips the look.
fn look_after<R>(look: impl FnOnce() -> R, blind: bool) -> Option<R> {
    if blind {
        return None;
    }
    if !weakened("sleep::looks_without_fence") {
        // ordering[parking-dekker]: SeqCst. Pairs with the fence in `notify`.
        fence(Ordering::SeqCst);
    }
    Some(look())
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use uruk_core::sync::{Arc, thread};

    fn counts(sleeping: u64, searching: u64, vacant: u64) -> Counts {
        Counts { sleeping, searching, vacant }
    }

    /// A protocol with one slot in each of `sleeping`, `searching`, `at_work`, and `vacant` more, without threads.
    fn staged(sleeping: u64, searching: u64, vacant: u64, at_work: u64) -> Sleep {
        let sleep = Sleep::new((sleeping + searching + vacant + at_work) as usize);
        let word = sleeping * SLEEPING + searching * SEARCHING + vacant * VACANT;
        sleep.counts.store(word, Ordering::Relaxed);
        sleep
    }

    #[test]
    fn the_table_of_transitions_holds() {
        type Step = fn(&Sleep);
        let table: [(&str, Step, Counts); 10] = [
            ("start_searching", |s| s.start_searching(), counts(1, 2, 1)),
            ("found, others wait", |s| assert_eq!(s.found(|| true), Wake::Woken), counts(0, 1, 1)),
            ("found, nothing waits", |s| assert_eq!(s.found(|| false), Wake::Nobody), counts(1, 0, 1)),
            ("second thoughts", |s| assert!(!s.sleep(|| true)), counts(1, 1, 1)),
            ("vacate", |s| assert_eq!(s.vacate(|| true), Wake::Nobody), counts(1, 1, 2)),
            ("stop", |s| assert!(s.stop(|| true)), counts(1, 0, 2)),
            ("occupy", |s| assert!(s.occupy()), counts(1, 1, 0)),
            ("start_failed", |s| assert!(s.start_failed()), counts(0, 1, 2)),
            ("wake_all", |s| s.wake_all(), counts(0, 2, 1)),
            ("notify beside a searcher", |s| assert_eq!(s.notify(), Wake::Nobody), counts(1, 1, 1)),
        ];
        for (name, step, after) in table {
            let sleep = staged(1, 1, 1, 1);
            step(&sleep);
            assert_eq!(sleep.counts(), after, "{name}");
        }
    }

    #[test]
    fn notify_prefers_a_searcher_to_a_sleeper_to_a_new_thread() {
        let sleep = staged(1, 0, 1, 0);
        assert_eq!(sleep.notify(), Wake::Woken);
        assert_eq!(sleep.notify(), Wake::Nobody, "the woken thread searches already");
        assert_eq!(sleep.found(|| true), Wake::Start);
        assert_eq!(sleep.found(|| true), Wake::Nobody, "every slot is at work");
        assert_eq!(sleep.counts(), counts(0, 0, 0));
    }

    #[test]
    fn a_lifted_limit_calls_a_thread_only_if_an_item_waits_and_no_thread_searches() {
        let sleep = staged(1, 0, 0, 1);
        assert_eq!(sleep.lifted(|| false), Wake::Nobody, "nothing is held back");
        assert_eq!(sleep.lifted(|| true), Wake::Woken);
        assert_eq!(sleep.lifted(|| true), Wake::Nobody, "the woken thread searches");
        assert_eq!(sleep.counts(), counts(0, 1, 0));
    }

    #[test]
    fn a_failed_start_says_whether_anybody_is_left() {
        let alone = staged(0, 0, 2, 0);
        assert_eq!(alone.notify(), Wake::Start);
        assert!(!alone.start_failed());
        assert_eq!(alone.counts(), counts(0, 0, 2));

        let beside_one_at_work = staged(0, 0, 1, 1);
        assert_eq!(beside_one_at_work.notify(), Wake::Start);
        assert!(beside_one_at_work.start_failed());
    }

    #[test]
    fn the_last_searcher_lingers_and_beside_another_none_does() {
        let asked = std::cell::Cell::new(0);
        let asked = &asked;
        let after = |times| {
            move || {
                asked.set(asked.get() + 1);
                asked.get() > times
            }
        };
        let (alone, beside_another) = (staged(1, 1, 0, 1), staged(0, 2, 1, 0));
        assert!(!alone.linger(after(LINGER)), "there is no reason");
        assert_eq!(asked.take(), LINGER, "no spinning");
        assert!(alone.linger(after(2)), "there is one at the third look");
        assert_eq!(asked.take(), 3);
        assert!(!beside_another.linger(after(0)));
        assert_eq!(asked.take(), 0);
        assert_eq!(alone.counts(), counts(1, 1, 0), "it searches all the while");
    }

    #[test]
    fn each_token_wakes_one_sleeper() {
        let sleep = Arc::new(staged(0, 2, 0, 0));
        let sleepers = [(); 2].map(|()| {
            let sleep = sleep.clone();
            thread::spawn(move || assert!(sleep.sleep(|| false)))
        });
        while sleep.counts().sleeping < 2 {
            thread::yield_now();
        }
        assert_eq!(sleep.notify(), Wake::Woken);
        assert_eq!(sleep.counts(), counts(1, 1, 0));
        sleep.wake_all();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert_eq!(*sleep.tokens.lock(), 0);
        assert_eq!(sleep.counts(), counts(0, 2, 0));
    }
}
