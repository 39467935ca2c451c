//! Pointers to code, as the words that atomics hold.

use std::num::NonZeroU64;

use uruk_core::ExecutorAddr;

/// A pointer to code that is kept in an atomic word. Zero stands for none.
///
/// An embedder has a type of its own, so that an address of something else does not get here.
pub trait CodePointer: Copy + Send + Sync {
    /// The pointer as a word.
    fn to_word(self) -> NonZeroU64;

    /// The pointer that was made into `word`.
    fn from_word(word: NonZeroU64) -> Self;
}

impl CodePointer for NonZeroU64 {
    #[inline]
    fn to_word(self) -> Self {
        self
    }

    #[inline]
    fn from_word(word: Self) -> Self {
        word
    }
}

/// # Panics
/// No code is at [`ExecutorAddr::NULL`]: making a word of that panics.
impl CodePointer for ExecutorAddr {
    #[inline]
    fn to_word(self) -> NonZeroU64 {
        NonZeroU64::new(self.value()).expect("code is not at the null address")
    }

    #[inline]
    fn from_word(word: NonZeroU64) -> Self {
        Self::new(word.get())
    }
}
