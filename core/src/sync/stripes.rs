//! Counts that threads move without meeting: one word for a few of them each.

use std::ops::Index;

use crossbeam_utils::CachePadded;

use super::atomic::AtomicUsize;

/// A few words, each on a line of the cache of its own. Which one a thread uses is its own choice, by [`Stripe::here`].
#[derive(Debug, Default)]
pub(crate) struct Striped([CachePadded<AtomicUsize>; STRIPES]);

/// One of the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe(usize);

/// In models two threads shall find both: that they use the same word and that they do not.
const STRIPES: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 2 } else { 8 };

impl Striped {
    /// All words, one after another: no moment at which they are what they say together.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AtomicUsize> {
        self.0.iter().map(|word| &**word)
    }
}

impl Index<Stripe> for Striped {
    type Output = AtomicUsize;

    #[inline]
    fn index(&self, Stripe(stripe): Stripe) -> &AtomicUsize {
        &self.0[stripe]
    }
}

impl Stripe {
    /// The one that this thread shares with the fewest others. Always the same, except while the thread is torn down.
    #[inline]
    pub(crate) fn here() -> Self {
        Self(number_of_thread() % STRIPES)
    }
}

/// Threads that began one after another have numbers one after another.
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
#[inline]
fn number_of_thread() -> usize {
    use std::cell::Cell;

    thread_local! {
        /// One more than the number; 0 until it is known.
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    match NUMBER.get() {
        0 => {
            // Truncated: any number will do.
            let number = super::unique() as usize | 1 << (usize::BITS - 1);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

/// Models have to find the same number each time they run the same order.
#[cfg(any(uruk_loom, uruk_shuttle))]
fn number_of_thread() -> usize {
    let id = format!("{:?}", super::thread::current().id());
    id.bytes().filter(u8::is_ascii_digit).map(usize::from).sum()
}
