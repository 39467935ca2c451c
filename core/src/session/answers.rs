//! Answers of blocked lookups, on their way to the threads that wait for them.
//!
//! A blocked lookup has a number, by which the thread that ends it finds the thread that waits. Mostly both are one thread: in place it
//! runs the units that it waits for. Then the answer stays on the thread, and no other hears of the lookup. Otherwise the two meet at a
//! *place* of the session, which the first to come makes and the last to come takes away:
//!
//! | place | made by | taken away by |
//! |---|---|---|
//! | `Waits` | the waiter, which found no answer | itself, if no answer will come any more |
//! | `Answer` | the thread that ends the lookup, where `Waits` was or nothing | the waiter |
//! | `GivenUp` | the waiter, where `Waits` was, or nothing before it came here, and an answer is on its way | the thread that ends the lookup |

use rustc_hash::FxHashMap;

use crate::sync::{Arc, Latch, Mutex, unique, weakened};

use super::here;
use super::query::Outcome;

/// The number of a blocked lookup in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WaiterId(u64);

/// Where threads that wait and threads that answer meet.
#[derive(Debug, Default)]
pub(super) struct Answers {
    places: Mutex<FxHashMap<WaiterId, Place>>,
}

#[derive(Debug)]
enum Place {
    Waits(Arc<Latch>),
    Answer(Outcome),
    GivenUp,
}

/// A lookup whose answer this thread may give itself, until it is dropped.
#[derive(Debug)]
pub(super) struct Asked {
    waiter: WaiterId,
    /// The thread has it in its list.
    is_listed: bool,
}

/// The lookups whose answers a thread may give itself.
#[derive(Default)]
pub(super) struct AskedHere {
    /// Those that this thread has begun and not waited for yet, outermost first, each with its answer once that is there.
    asked: Vec<(WaiterId, Option<Outcome>)>,
    /// Numbers that are this thread's to give.
    next: u64,
    left: u64,
}

/// How many numbers a thread takes at once. Threads that took them one by one would meet at the count.
const NUMBERS: u64 = 1 << 16;

/// Borrows this thread's part. None while the thread ends: its answers take the way of those from other threads.
#[inline]
fn with<R>(operation: impl FnOnce(&mut AskedHere) -> R) -> Option<R> {
    here::with(|thread| operation(&mut thread.asked))
}

impl AskedHere {
    fn number(&mut self) -> u64 {
        if self.left == 0 {
            (self.next, self.left) = (unique() * NUMBERS, NUMBERS);
        }
        self.left -= 1;
        self.next + self.left
    }

    /// Where a lookup is in the list: last, unless others were begun on top of it.
    fn place_of(&self, waiter: WaiterId) -> Option<usize> {
        self.asked.iter().rposition(|(asked, _)| *asked == waiter)
    }
}

impl Asked {
    /// A lookup is about to begin.
    pub(super) fn new() -> Self {
        let listed = with(|thread| {
            let waiter = WaiterId(thread.number());
            thread.asked.push((waiter, None));
            waiter
        });
        let is_listed = listed.is_some();
        Self { waiter: listed.unwrap_or_else(|| WaiterId(unique() * NUMBERS)), is_listed }
    }

    /// By what number it is known.
    pub(super) fn waiter(&self) -> WaiterId {
        self.waiter
    }

    /// The answer, if this thread has given it.
    pub(super) fn answer(mut self) -> Result<Outcome, Self> {
        let answered = with(|thread| {
            let place = thread.place_of(self.waiter).filter(|&place| thread.asked[place].1.is_some())?;
            thread.asked.remove(place).1
        });
        match answered.flatten() {
            Some(outcome) => {
                self.is_listed = false;
                Ok(outcome)
            }
            None => Err(self),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.is_listed {
            // The answer that is dropped may be the embedder's.
            let unheard = with(|thread| {
                let place = thread.place_of(self.waiter)?;
                Some(thread.asked.remove(place))
            });
            drop(unheard);
        }
    }
}

impl Answers {
    /// Gives a blocked lookup its answer. If its thread sleeps already, `wake` opens the latch that it sleeps at.
    pub(super) fn give(&self, waiter: WaiterId, outcome: Outcome, wake: impl FnOnce(&Latch)) {
        let mut outcome = Some(outcome);
        with(|thread| {
            if let Some(place) = thread.place_of(waiter) {
                thread.asked[place].1 = outcome.take();
            }
        });
        if let Some(outcome) = outcome {
            self.send(waiter, outcome, wake);
        }
    }

    /// The same for one that another thread waits for.
    fn send(&self, waiter: WaiterId, outcome: Outcome, wake: impl FnOnce(&Latch)) {
        let mut places = self.places.lock();
        if weakened("lookup::wakes_before_it_answers")
            && let Some(Place::Waits(latch)) = places.get(&waiter)
        {
            let latch = latch.clone();
            drop(places);
            latch.open();
            places = self.places.lock();
        }
        // An answer that came too late is dropped without the lock.
        let (latch, _unheard) = match places.remove(&waiter) {
            Some(Place::GivenUp) => (None, Some(outcome)),
            before => {
                places.insert(waiter, Place::Answer(outcome));
                (before, None)
            }
        };
        drop(places);
        if let Some(Place::Waits(latch)) = latch {
            wake(&latch);
        }
    }

    /// The answer of a lookup, if it is there, or what opens when it is: a new latch.
    pub(super) fn meet(&self, asked: Asked, latch: impl FnOnce() -> Latch) -> Result<Outcome, Arc<Latch>> {
        // It may have come since the last look: what watches the wait runs code of the embedder, who may run others' tasks there.
        let asked = match asked.answer() {
            Ok(outcome) => return Ok(outcome),
            Err(asked) => asked,
        };
        let waiter = asked.waiter;
        // From now on its own answer comes the same way.
        drop(asked);
        let mut places = self.places.lock();
        match places.remove(&waiter) {
            Some(Place::Answer(outcome)) => Ok(outcome),
            _ => {
                if weakened("lookup::waits_where_the_answer_is_not_seen") {
                    drop(places);
                    places = self.places.lock();
                }
                let latch = Arc::new(latch());
                places.insert(waiter, Place::Waits(latch.clone()));
                Err(latch)
            }
        }
    }

    /// The answer, once the latch is open.
    pub(super) fn take(&self, waiter: WaiterId) -> Option<Outcome> {
        match self.places.lock().remove(&waiter) {
            Some(Place::Answer(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// The waiter has given up. If the lookup has ended, its answer may be on its way. `has_met` says whether the waiter was
    /// here.
    pub(super) fn give_up(&self, waiter: WaiterId, has_ended: bool, has_met: bool) {
        let mut places = self.places.lock();
        let before = places.remove(&waiter);
        let is_on_its_way = match before {
            Some(Place::Waits(_)) => true,
            Some(_) => false,
            // The waiter has it, or this thread has it in the list.
            None => !has_met && !is_answered_here(waiter),
        };
        if has_ended && is_on_its_way {
            places.insert(waiter, Place::GivenUp);
        }
        drop(places);
        drop(before);
    }
}

/// Whether this thread has the answer of a lookup that it has begun.
fn is_answered_here(waiter: WaiterId) -> bool {
    let answered =
        |thread: &mut AskedHere| thread.place_of(waiter).is_some_and(|place| thread.asked[place].1.is_some());
    with(answered).unwrap_or(false)
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::LookupError;
    use crate::sync::thread;

    fn closed() -> Outcome {
        Err(LookupError::Closed)
    }

    fn is_closed(outcome: &Outcome) -> bool {
        matches!(outcome, Err(LookupError::Closed))
    }

    #[test]
    fn what_a_thread_answers_itself_nobody_else_hears_of() {
        let answers = Answers::default();
        let (outer, inner) = (Asked::new(), Asked::new());
        answers.give(outer.waiter(), closed(), Latch::open);
        let inner = inner.answer().expect_err("it was not answered");
        answers.give(inner.waiter(), closed(), Latch::open);
        assert!(answers.places.lock().is_empty());
        assert!(is_closed(&inner.answer().expect("it was answered")));
        assert!(is_closed(&outer.answer().expect("it was answered")));
    }

    #[test]
    fn an_answer_from_another_thread_is_found_before_the_wait_and_after_it() {
        let answers = Arc::new(Answers::default());
        let answered = |waiter| {
            let answers = answers.clone();
            thread::spawn(move || answers.give(waiter, closed(), Latch::open)).join().expect("no panic");
        };
        let asked = Asked::new();
        answered(asked.waiter());
        let asked = asked.answer().expect_err("it is not this thread's answer");
        assert!(is_closed(&answers.meet(asked, Latch::new).expect("it is there")));

        let asked = Asked::new();
        let waiter = asked.waiter();
        let latch = answers.meet(asked, Latch::new).expect_err("there is none");
        answered(waiter);
        latch.wait();
        assert!(is_closed(&answers.take(waiter).expect("it is there")));
        assert!(answers.places.lock().is_empty());
    }

    /// Whether the answer was given before, is on its way, or never comes.
    #[test]
    fn nothing_is_left_of_a_lookup_that_was_given_up() {
        let answers = Answers::default();
        let waiter = || {
            let asked = Asked::new();
            let waiter = asked.waiter();
            let _latch = answers.meet(asked, Latch::new).expect_err("there is no answer");
            waiter
        };
        let before = waiter();
        answers.give(before, closed(), Latch::open);
        answers.give_up(before, true, true);
        let after = waiter();
        answers.give_up(after, true, true);
        answers.give(after, closed(), Latch::open);
        answers.give_up(waiter(), false, true);
        // One that is given up with the answer in its hands.
        let asked = Asked::new();
        let heard = asked.waiter();
        answers.send(heard, closed(), Latch::open);
        assert!(is_closed(&answers.meet(asked, Latch::new).expect("it is there")));
        answers.give_up(heard, true, true);

        let answers = Arc::new(answers);
        let elsewhere = |waiter| {
            let answers = answers.clone();
            thread::spawn(move || answers.give(waiter, closed(), Latch::open)).join().expect("no panic");
        };
        for (here, before) in [(true, true), (false, true), (false, false)] {
            let asked = Asked::new();
            match here {
                true => answers.give(asked.waiter(), closed(), Latch::open),
                false if before => elsewhere(asked.waiter()),
                false => {}
            }
            answers.give_up(asked.waiter(), true, false);
            let waiter = asked.waiter();
            drop(asked);
            if !before {
                elsewhere(waiter);
            }
        }
        answers.give_up(Asked::new().waiter(), false, false);
        assert!(answers.places.lock().is_empty());
        assert!(with(|thread| thread.asked.is_empty()).expect("the thread lives"));
    }
}
