//! [`HelperShelf`]: places for helpers, and the way of a request through them.
//!
//! Generic over helpers, so that a model runs this file.

use uruk_core::sync::{Condvar, Mutex, weakened};

/// How many helpers that were started for a request may end before one begins it. Then the request fails.
pub const ATTEMPTS_MAX: u32 = 4;

/// Helpers that are idle, and places for more.
///
/// Holds: idle and taken places together are at most `count`.
#[derive(Debug)]
pub(super) struct HelperShelf<P> {
    places: Mutex<Places<P>>,
    freed: Condvar,
}

#[derive(Debug)]
struct Places<P> {
    /// The one that was busy last is the last.
    idle: Vec<P>,
    taken: usize,
    count: usize,
    /// Whether helpers come back to the shelf.
    keeps: bool,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(super) struct HelperPlace<'a, P> {
    shelf: &'a HelperShelf<P>,
    is_given_back: bool,
}

/// The outcome of asking one helper.
pub(super) enum Asked<R, E> {
    /// An answer. The helper can be asked again if it `is_fit`.
    Answered { answer: R, is_fit: bool },
    /// The helper was gone before it began: the request may be given to another one.
    NotBegun(E),
    /// The helper had begun.
    Failed(E),
}

impl<P> HelperShelf<P> {
    /// Places for so many helpers, at least one.
    pub(super) fn new(count: usize) -> Self {
        let places = Places { idle: Vec::new(), taken: 0, count: count.max(1), keeps: true };
        Self { places: Mutex::new(places), freed: Condvar::new() }
    }

    /// Takes a place, with its helper if it has one. Waits until there is a place.
    pub(super) fn take(&self) -> (HelperPlace<'_, P>, Option<P>) {
        let mut places = self.places.lock();
        while places.idle.is_empty() && places.taken == places.count {
            places = self.freed.wait(places);
        }
        places.taken += 1;
        let helper = places.idle.pop();
        (HelperPlace { shelf: self, is_given_back: false }, helper)
    }

    /// From here on helpers do not come back. Those that are idle, to be dropped.
    #[must_use]
    pub(super) fn clear(&self) -> Vec<P> {
        let mut places = self.places.lock();
        places.keeps = false;
        std::mem::take(&mut places.idle)
    }

    /// Looks at the idle helpers.
    pub(super) fn with_idle<R>(&self, look: impl FnOnce(&[P]) -> R) -> R {
        look(&self.places.lock().idle)
    }

    /// A place for a helper ahead of the first request, if there is no other helper and they are kept.
    pub(super) fn take_first(&self) -> Option<HelperPlace<'_, P>> {
        let mut places = self.places.lock();
        if !places.keeps || !places.idle.is_empty() || places.taken > 0 {
            return None;
        }
        places.taken += 1;
        Some(HelperPlace { shelf: self, is_given_back: false })
    }
}

impl<P> HelperPlace<'_, P> {
    /// Gives the place back with its helper. The helper, if none is kept.
    #[must_use]
    pub(super) fn keep(mut self, helper: P) -> Option<P> {
        self.is_given_back = true;
        let mut places = self.shelf.places.lock();
        places.taken -= 1;
        let refused = if places.keeps {
            places.idle.push(helper);
            None
        } else {
            Some(helper)
        };
        drop(places);
        self.shelf.freed.notify_one();
        refused
    }
}

impl<P> Drop for HelperPlace<'_, P> {
    fn drop(&mut self) {
        if self.is_given_back {
            return;
        }
        self.shelf.places.lock().taken -= 1;
        if !weakened("helpers::frees_in_silence") {
            self.shelf.freed.notify_one();
        }
    }
}

/// Has a helper of `shelf` answer, or one that `start` makes.
///
/// A helper that is gone leaves its place only when it is dropped, so that no more than `count` are alive.
pub(super) fn request<P, R, E>(
    shelf: &HelperShelf<P>,
    start: &mut dyn FnMut() -> Result<P, E>,
    ask: &mut dyn FnMut(&mut P) -> Asked<R, E>,
) -> Result<R, E> {
    let mut attempt = 1;
    loop {
        let (place, idle) = shelf.take();
        // An idle one may have ended long ago, and says nothing of those that can be had now.
        let is_new = idle.is_none();
        let mut helper = match idle {
            Some(helper) => helper,
            None => start()?,
        };
        match ask(&mut helper) {
            Asked::Answered { answer, is_fit: true } => {
                drop(place.keep(helper));
                return Ok(answer);
            }
            Asked::Answered { answer, is_fit: false } => {
                drop(helper);
                return Ok(answer);
            }
            Asked::NotBegun(_) if !is_new => {}
            Asked::NotBegun(_) if attempt < ATTEMPTS_MAX => attempt += 1,
            Asked::NotBegun(error) => return Err(error),
            Asked::Failed(_) if weakened("helpers::asks_again") => {}
            Asked::Failed(error) => return Err(error),
        }
        drop(helper);
        drop(place);
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_helpers_that_were_started_count_as_attempts() {
        let idle = ATTEMPTS_MAX as usize + 3;
        let shelf = HelperShelf::new(idle);
        let places: Vec<_> = (0..idle).map(|_| shelf.take().0).collect();
        places.into_iter().for_each(|place| assert!(place.keep(false).is_none()));
        let ask = &mut |is_alive: &mut bool| match is_alive {
            true => Asked::Answered { answer: (), is_fit: true },
            false => Asked::NotBegun("it has ended"),
        };
        assert_eq!(request(&shelf, &mut || Ok(true), ask), Ok(()), "all idle ones had ended");
        let (shelf, mut started) = (HelperShelf::new(1), 0);
        let mut start = || {
            started += 1;
            Ok(false)
        };
        assert_eq!(request(&shelf, &mut start, ask), Err("it has ended"));
        assert_eq!(started, ATTEMPTS_MAX);
    }
}
