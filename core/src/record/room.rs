//! The memory of an array: slots that are vacant at first.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::Room;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::Room;

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use crate::record::slot::Slot;
    use crate::record::word::Word;

    #[derive(Default)]
    pub(in crate::record) struct Room {
        words: Box<[Word]>,
        /// The first word of the first slot: no slot shall lie in two cache lines.
        first: usize,
        len: usize,
    }

    const SLOT_WORDS: usize = 4;

    impl Room {
        /// The system gives zeroed memory page by page as it is touched, so even a large array is there at once.
        pub(in crate::record) fn new(len: usize) -> Self {
            if len == 0 {
                return Self::default();
            }
            let words = bytemuck::zeroed_slice_box::<Word>((len + 1) * SLOT_WORDS);
            let behind_a_boundary = words.as_ptr().addr() / size_of::<Word>() % SLOT_WORDS;
            Self { words, first: (SLOT_WORDS - behind_a_boundary) % SLOT_WORDS, len }
        }

        pub(in crate::record) fn len(&self) -> usize {
            self.len
        }

        #[inline]
        pub(in crate::record) fn slots(&self) -> &[Slot] {
            &self.words[self.first..].as_chunks().0[..self.len]
        }
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use crate::record::slot::Slot;

    #[derive(Default)]
    pub(in crate::record) struct Room(Box<[Slot]>);

    impl Room {
        pub(in crate::record) fn new(len: usize) -> Self {
            Self((0..len).map(|_| Slot::default()).collect())
        }

        pub(in crate::record) fn len(&self) -> usize {
            self.0.len()
        }

        pub(in crate::record) fn slots(&self) -> &[Slot] {
            &self.0
        }
    }

    /// A read or write that is not ordered before this is an error.
    #[cfg(uruk_loom)]
    impl Drop for Room {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                self.0.iter_mut().flatten().for_each(|word| word.end());
            }
        }
    }
}
