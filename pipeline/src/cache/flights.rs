//! [`Flights`]: one thread of this process makes the entry of a key, while others wait for it.
//!
//! ```text
//!  enter ─▶ nothing is made: leads ─▶ land(value): all threads that wait have the value
//!      │                          └─▶ dropped: the first thread that waits leads, the others wait for it
//!      └─▶ it is made: waits ──▶ has a value, or leads
//!                          └───▶ gives up: goes alone, unless it was told something in the meantime
//! ```
//!
//! **Architecture Invariant:** a key that has a flight has a leader, which has been told so. No value is dropped, and no thread
//! woken, under the lock.
//!
//! All flights have one lock: it is held for two operations of a map for each entry that is compiled, which takes a thousand times as
//! long. The model needs this file and `uruk_core` alone.

use std::fmt;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use uruk_core::sync::{Arc, Latch, Mutex, weakened};

/// The flights of all keys.
pub(crate) struct Flights<K: Copy + Eq + Hash, V: Clone> {
    book: Mutex<Book<K, V>>,
}

struct Book<K, V> {
    /// The threads that wait, by the key that is being made, in the order in which they came.
    waiting: FxHashMap<K, Vec<Seat>>,
    /// Messages to threads that have not looked yet, by the numbers of their seats.
    told: FxHashMap<u64, Told<V>>,
    seats: u64,
}

/// A thread that waits.
struct Seat {
    number: u64,
    /// Opened once it was told something.
    is_told: Arc<Latch>,
}

#[derive(Debug)]
enum Told<V> {
    Leads,
    Has(V),
}

/// The next step of a thread that wants the entry of a key.
#[derive(Debug)]
pub(crate) enum EnteredFlight<'a, K: Copy + Eq + Hash, V: Clone> {
    /// Make it, for all.
    Leads(Leader<'a, K, V>),
    /// Take it.
    Landed(V),
    /// Make it, for itself: the wait for another was given up.
    Alone,
}

/// Makes the entry of a key, for all who want it. Dropping it hands the task to the next.
pub(crate) struct Leader<'a, K: Copy + Eq + Hash, V: Clone> {
    flights: &'a Flights<K, V>,
    key: K,
    has_landed: bool,
}

/// Has a seat until it is dropped, also by a panic of the thread that waits.
struct Seated<'a, K: Copy + Eq + Hash, V: Clone> {
    flights: &'a Flights<K, V>,
    key: K,
    number: u64,
    is_told: Arc<Latch>,
}

impl<K: Copy + Eq + Hash, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        let (waiting, told) = (FxHashMap::default(), FxHashMap::default());
        Self { book: Mutex::new(Book { waiting, told, seats: 0 }) }
    }

    /// Joins the flight of a key, or begins one. `wait` is to return once the latch is open, and may return earlier.
    pub(crate) fn enter(&self, key: K, wait: impl FnOnce(&Latch)) -> EnteredFlight<'_, K, V> {
        let leads = || EnteredFlight::Leads(Leader { flights: self, key, has_landed: false });
        let Some(seated) = self.sit_down(key) else { return leads() };
        wait(&seated.is_told);
        match seated.stand_up() {
            None => EnteredFlight::Alone,
            Some(Told::Leads) => leads(),
            Some(Told::Has(value)) => EnteredFlight::Landed(value),
        }
    }

    /// How many keys are being made, and how many threads have something to look at.
    #[cfg(any(test, uruk_loom))]
    pub(crate) fn len(&self) -> (usize, usize) {
        let book = self.book.lock();
        (book.waiting.len(), book.told.len())
    }

    /// A seat, if another thread makes the entry. Without a seat, the caller leads.
    fn sit_down(&self, key: K) -> Option<Seated<'_, K, V>> {
        let mut book = self.book.lock();
        if weakened("single_flight::looks_before_it_enters") && !book.waiting.contains_key(&key) {
            drop(book);
            self.book.lock().waiting.insert(key, Vec::new());
            return None;
        }
        let number = book.seats + 1;
        let Some(seats) = book.waiting.get_mut(&key) else {
            book.waiting.insert(key, Vec::new());
            return None;
        };
        let is_told = Arc::new(Latch::new());
        seats.push(Seat { number, is_told: is_told.clone() });
        book.seats = number;
        Some(Seated { flights: self, key, number, is_told })
    }

    /// The flight has ended: all who wait have the value.
    fn land(&self, key: &K, value: &V) {
        let mut seats = {
            let mut book = self.book.lock();
            let seats = book.waiting.remove(key).unwrap_or_default();
            // Told under the lock: a thread that stands up later finds the message, and one that has stood up has no seat.
            book.told.extend(seats.iter().map(|seat| (seat.number, Told::Has(value.clone()))));
            seats
        };
        if weakened("single_flight::wakes_one_only") {
            seats.truncate(1);
        }
        seats.iter().for_each(|seat| seat.is_told.open());
    }

    /// The leader has not made it: the next one leads.
    fn hand_over(&self, key: &K) {
        let next = {
            let mut book = self.book.lock();
            let Some(seats) = book.waiting.get_mut(key) else { return };
            if seats.is_empty() || weakened("single_flight::leaves_without_a_successor") {
                book.waiting.remove(key);
                return;
            }
            let next = seats.remove(0);
            book.told.insert(next.number, Told::Leads);
            next
        };
        next.is_told.open();
    }
}

impl<K: Copy + Eq + Hash, V> Book<K, V> {
    /// Takes a seat away; gives what it was told before.
    fn leave(&mut self, key: &K, number: u64) -> Option<Told<V>> {
        let told = self.told.remove(&number);
        if told.is_none() {
            self.leave_unseen(key, number);
        }
        told
    }

    fn leave_unseen(&mut self, key: &K, number: u64) {
        if let Some(seats) = self.waiting.get_mut(key) {
            seats.retain(|seat| seat.number != number);
        }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Seated<'_, K, V> {
    /// Ends the wait: later messages are not sent to this seat. An earlier message stands.
    fn stand_up(&self) -> Option<Told<V>> {
        if weakened("single_flight::gives_up_unseen") && !self.is_told.is_open() {
            self.flights.book.lock().leave_unseen(&self.key, self.number);
            return None;
        }
        self.flights.book.lock().leave(&self.key, self.number)
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Drop for Seated<'_, K, V> {
    fn drop(&mut self) {
        // Told to lead while its wait panicked.
        if let Some(Told::Leads) = self.stand_up() {
            self.flights.hand_over(&self.key);
        }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Leader<'_, K, V> {
    /// The entry is made.
    pub(crate) fn land(mut self, value: &V) {
        self.has_landed = true;
        self.flights.land(&self.key, value);
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Drop for Leader<'_, K, V> {
    fn drop(&mut self) {
        if !self.has_landed {
            self.flights.hand_over(&self.key);
        }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> fmt::Debug for Flights<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("flights", &self.book.lock().waiting.len()).finish_non_exhaustive()
    }
}

impl<K: Copy + Eq + Hash, V: Clone> fmt::Debug for Leader<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Holds that a flight of key 1 has no trace left.
    fn assert_over(flights: &Flights<u32, u32>) {
        assert_eq!(flights.len(), (0, 0));
    }

    #[test]
    fn who_waits_has_the_value_that_another_made() {
        let flights = Flights::new();
        let EnteredFlight::Leads(leader) = flights.enter(1, |_| unreachable!("nobody makes it")) else {
            panic!("nobody makes it")
        };
        // Lands while the other waits: on its thread here.
        let mut leader = Some(leader);
        let entered = flights.enter(1, |told| {
            leader.take().expect("one wait").land(&7);
            told.wait();
        });
        assert!(matches!(entered, EnteredFlight::Landed(7)), "{entered:?}");
        assert_over(&flights);
    }

    #[test]
    fn the_next_leads_when_the_leader_fails() {
        let flights = Flights::<u32, u32>::new();
        let EnteredFlight::Leads(leader) = flights.enter(1, |_| ()) else { panic!("nobody makes it") };
        let mut leader = Some(leader);
        let entered = flights.enter(1, |told| {
            drop(leader.take());
            told.wait();
        });
        let EnteredFlight::Leads(next) = entered else { panic!("{entered:?}") };
        assert!(matches!(flights.enter(1, |_| ()), EnteredFlight::Alone), "a wait that ends early");
        drop(next);
        assert_over(&flights);
    }

    #[test]
    fn who_panics_while_it_waits_hands_the_lead_on() {
        let flights = Flights::<u32, u32>::new();
        let EnteredFlight::Leads(leader) = flights.enter(1, |_| ()) else { panic!("nobody makes it") };
        let mut leader = Some(leader);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            flights.enter(1, |told| {
                drop(leader.take());
                told.wait();
                panic!("of who waits");
            });
        }));
        panicked.expect_err("it has panicked");
        assert_over(&flights);
    }
}
