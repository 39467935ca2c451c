//! A code instance: one specialization of one method, and how to call it, read without a lock while it is being published.
//!
//! The crate's page has the states, the steps, and why they suffice.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::num::NonZeroU64;

use uruk_core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use uruk_core::sync::{hint, thread, weakened};

use crate::pointer::CodePointer;

/// `flags`: `specptr` has the specialized signature.
const SPECIALIZED: u8 = 0b01;

/// `flags`: `invoke` and `specptr` are a pair.
const PUBLISHED: u8 = 0b10;

/// How many times a thread looks before it lets others run in between. A publication takes three stores.
const LOOKS_MAX: u32 = 64;

/// The entry points of one specialization: unset at first, then published once, then updated each time it is compiled better.
///
/// The crate's page has the states, the steps, and why they suffice.
///
/// # Concurrency
/// Every method may be called from any thread. None takes a lock. `read`, `publish` and `update` wait while a pair is being published,
/// which takes three stores. So a signal handler must not call them if it may interrupt `publish`.
///
/// Source: Julia, `doc/src/devdocs/jit.md`, section *Execution*; `jl_code_instance_t` in `src/julia.h`.
///
/// ```
/// use uruk_core::ExecutorAddr;
/// use uruk_instances::{CodeInstance, CodeInstanceState, CodeSignature};
///
/// let [boxed, adapter, first, better] = [0x1000, 0x2000, 0x3000, 0x4000].map(ExecutorAddr::new);
/// let instance = CodeInstance::new();
/// assert_eq!(instance.read(), CodeInstanceState::Unset);
///
/// // An interpreter, say: it needs nothing but itself.
/// instance.publish_invoke(boxed).expect("nothing was there");
/// assert_eq!(instance.invoke(), Some(boxed));
///
/// // The compiler is done: `adapter` unboxes arguments and jumps to `specptr`.
/// instance.publish(adapter, first, CodeSignature::Specialized).expect("no other thread was faster");
/// instance.update(better).expect("there is a pair");
/// assert_eq!(instance.read(), CodeInstanceState::Specialized { invoke: adapter, specptr: better });
/// ```
#[doc(alias = "jl_code_instance_t")]
#[derive(Debug)]
#[repr(C)]
pub struct CodeInstance<P> {
    invoke: AtomicU64,
    specptr: AtomicU64,
    flags: AtomicU8,
    pointer: PhantomData<P>,
}

/// A code instance at one moment, with the pointers that may be used in that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeInstanceState<P> {
    /// It cannot be called yet.
    Unset,
    /// It is called by the boxed convention, and that code needs nothing of the instance.
    InvokeOnly {
        /// Its entry.
        invoke: P,
    },
    /// There is a pair, and no specialized signature: both pointers take boxed arguments.
    Boxed {
        /// The entry for callers that know only the boxed convention. It may use `specptr`.
        invoke: P,
        /// The code.
        specptr: P,
    },
    /// There is a pair, and `specptr` takes its arguments as the types of the specialization say.
    Specialized {
        /// The entry for callers that know only the boxed convention. It may use `specptr`.
        invoke: P,
        /// The code.
        specptr: P,
    },
}

/// By which convention the code at `specptr` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "specsigflags")]
pub enum CodeSignature {
    /// Boxed arguments, like `invoke`.
    Boxed,
    /// The types of the specialization.
    Specialized,
}

impl CodeSignature {
    fn of(flags: u8) -> Self {
        if flags & SPECIALIZED == 0 { Self::Boxed } else { Self::Specialized }
    }

    fn flags(self) -> u8 {
        match self {
            Self::Boxed => 0,
            Self::Specialized => SPECIALIZED,
        }
    }
}

impl<P: CodePointer> CodeInstance<P> {
    /// Where generated code finds the word of [`invoke`](Self::invoke). An ordinary load of x86-64 is an Acquire.
    pub const INVOKE_OFFSET: usize = offset_of!(Self, invoke);

    /// Where an adapter finds the word of its code, once it was called through the `invoke` of a pair. See
    /// [`behind_invoke`](Self::behind_invoke).
    pub const SPECPTR_OFFSET: usize = offset_of!(Self, specptr);

    /// Creates an instance that cannot be called yet.
    pub fn new() -> Self {
        Self {
            invoke: AtomicU64::new(0),
            specptr: AtomicU64::new(0),
            flags: AtomicU8::new(0),
            pointer: PhantomData,
        }
    }

    /// The present state of the instance. Pointers in one answer belong together.
    ///
    /// A reader that gets a pointer also sees every write made before that pointer was published or updated.
    ///
    /// # Cost
    /// Four loads of one cache line. Waits while a pair is being published.
    #[doc(alias = "jl_read_codeinst_invoke")]
    #[inline]
    pub fn read(&self) -> CodeInstanceState<P> {
        let early = weakened("code_instance::reads_specptr_first").then(|| self.load_specptr());
        let Some(initial) = self.invoke() else { return CodeInstanceState::Unset };
        let Some(specptr) = early.unwrap_or_else(|| self.load_specptr()) else {
            return CodeInstanceState::InvokeOnly { invoke: initial };
        };
        // ordering[instance-published]: Acquire. Pairs with the Release in `publish`: `invoke`, the low bit and the code of the pair
        // are seen below. Model: loom-tests/tests/models/code_instance.rs.
        let acquire = unless(weakened("code_instance::reads_flags_unordered"), Ordering::Acquire);
        let flags = match weakened("code_instance::reads_without_waiting") {
            false => self.wait_until_published(acquire),
            true => self.flags.load(acquire),
        };
        // Relaxed: the flags come before it, and the `invoke` of a pair stays.
        let invoke = match weakened("code_instance::reads_invoke_once") {
            false => decode(self.invoke.load(Ordering::Relaxed)).unwrap_or(initial),
            true => initial,
        };
        match CodeSignature::of(flags) {
            CodeSignature::Boxed => CodeInstanceState::Boxed { invoke, specptr },
            CodeSignature::Specialized => CodeInstanceState::Specialized { invoke, specptr },
        }
    }

    /// The entry for callers that know only the boxed convention, if it can be called. Never waits.
    ///
    /// # Cost
    /// One load.
    #[inline]
    pub fn invoke(&self) -> Option<P> {
        // ordering[instance-invoke]: Acquire. Pairs with the Releases in `publish` and `publish_invoke`: what `invoke` leads to is seen,
        // and for a pair its `specptr` and its low bit. Model: loom-tests/tests/models/code_instance.rs.
        decode(self.invoke.load(unless(weakened("code_instance::reads_invoke_unordered"), Ordering::Acquire)))
    }

    /// The code behind the `invoke` of a pair: for the adapter that was just entered through it. Never waits.
    ///
    /// The caller has got that `invoke` from this instance. For any other caller the answer may be no pair; `read` serves them.
    ///
    /// # Cost
    /// Two loads.
    #[doc(alias = "specptr")]
    #[inline]
    pub fn behind_invoke(&self) -> Option<(P, CodeSignature)> {
        let specptr = self.load_specptr()?;
        // Relaxed: `invoke` comes after it, and the caller has read that.
        Some((specptr, CodeSignature::of(self.flags.load(Ordering::Relaxed))))
    }

    /// Publishes an entry that needs nothing of the instance: an interpreter, a constant, code that was compiled boxed and alone.
    ///
    /// A pair may take its place later.
    ///
    /// # Errors
    /// Something can be called already. The error says what.
    pub fn publish_invoke(&self, invoke: P) -> Result<(), CodeInstanceState<P>> {
        let word = invoke.to_word().get();
        // ordering[instance-invoke]: Release. Pairs with the Acquire in `invoke`.
        let release = unless(weakened("code_instance::stores_lone_invoke_unordered"), Ordering::Release);
        if weakened("code_instance::lone_invoke_overwrites") {
            self.invoke.store(word, release);
            return Ok(());
        }
        // Relaxed if it fails: `read` looks again.
        self.invoke.compare_exchange(0, word, release, Ordering::Relaxed).map(drop).map_err(|_| self.read())
    }

    /// Publishes a pair: `specptr`, which has `signature`, and `invoke`, which may rely on it.
    ///
    /// From the return on `read` answers with a pair. Of several who publish, one wins.
    ///
    /// # Errors
    /// There is a pair already. The error says which; it is complete.
    pub fn publish(
        &self,
        invoke: P,
        specptr: P,
        signature: CodeSignature,
    ) -> Result<(), CodeInstanceState<P>> {
        if !self.claim(specptr) {
            self.wait_for_winner();
            return Err(self.read());
        }
        let low = signature.flags();
        // ordering[instance-published]: Release. Pairs with the Acquires in `read`, `update` and `wait_for_winner`.
        let announce = unless(weakened("code_instance::announces_unordered"), Ordering::Release);
        if weakened("code_instance::announces_before_invoke") {
            self.flags.store(low | PUBLISHED, announce);
        }
        if !weakened("code_instance::low_bit_last") && !weakened("code_instance::low_bit_late") {
            // Relaxed: `invoke` makes it seen.
            self.flags.store(low, Ordering::Relaxed);
        }
        // ordering[instance-invoke]: Release. Pairs with the Acquire in `invoke`: `specptr`, the low bit and the code are seen.
        let release = unless(weakened("code_instance::stores_invoke_unordered"), Ordering::Release);
        // An exchange for the sake of models. A store would do: `publish_invoke` puts its own behind a zero and nothing else, so never behind
        // this. Loom does not know that of an exchange beside a store.
        self.invoke.swap(invoke.to_word().get(), release);
        if weakened("code_instance::low_bit_late") {
            self.flags.store(PUBLISHED, announce);
        }
        self.flags.store(low | PUBLISHED, announce);
        Ok(())
    }

    /// Replaces the code of a pair by code of the same signature that does the same. Both stay callable for ever.
    ///
    /// Of several who update, the last one's code stays: who must not be overtaken compiles one after another.
    ///
    /// # Errors
    /// There was no pair. The error says what there is; a pair, if it was published meanwhile.
    pub fn update(&self, specptr: P) -> Result<(), CodeInstanceState<P>> {
        // ordering[instance-published]: Acquire. Pairs with the Release in `publish`: what this thread reads from now on is a pair.
        let acquire = unless(weakened("code_instance::updates_what_it_has_not_seen"), Ordering::Acquire);
        if self.flags.load(acquire) & PUBLISHED == 0 {
            return Err(self.read());
        }
        // ordering[instance-specptr]: Release. Pairs with the Acquire in `load_specptr`: the new code is seen.
        let release = unless(weakened("code_instance::updates_unordered"), Ordering::Release);
        self.specptr.store(specptr.to_word().get(), release);
        Ok(())
    }

    /// Makes this thread the publisher, unless there is one already.
    fn claim(&self, specptr: P) -> bool {
        let word = specptr.to_word().get();
        // Relaxed: a reader uses this pointer only after `invoke` or the flags, which are stored later. A loser waits for the flags.
        if weakened("code_instance::claims_by_store") {
            self.specptr.store(word, Ordering::Relaxed);
            return true;
        }
        self.specptr.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Waits until the pair of the thread that was faster is complete.
    #[cold]
    fn wait_for_winner(&self) {
        // ordering[instance-published]: Acquire. Pairs with the Release in `publish`: the `read` that follows finds the pair.
        let acquire = unless(weakened("code_instance::loser_waits_unordered"), Ordering::Acquire);
        if !weakened("code_instance::loser_does_not_wait") {
            self.wait_until_published(acquire);
        }
    }

    /// The flags, once they say that the pair is complete.
    #[inline]
    fn wait_until_published(&self, acquire: Ordering) -> u8 {
        let mut looks = 0;
        loop {
            let flags = self.flags.load(acquire);
            if flags & PUBLISHED != 0 {
                return flags;
            }
            rest(&mut looks);
        }
    }

    #[inline]
    fn load_specptr(&self) -> Option<P> {
        // ordering[instance-specptr]: Acquire. Pairs with the Release in `update`: code that took the place of other code is seen.
        decode(
            self.specptr.load(unless(weakened("code_instance::reads_specptr_unordered"), Ordering::Acquire)),
        )
    }
}

impl<P: CodePointer> Default for CodeInstance<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn decode<P: CodePointer>(word: u64) -> Option<P> {
    NonZeroU64::new(word).map(P::from_word)
}

/// The ordering of an access, if a model has not left it out.
#[inline(always)]
pub(crate) fn unless(left_out: bool, ordering: Ordering) -> Ordering {
    // Relaxed: it is left out.
    if left_out { Ordering::Relaxed } else { ordering }
}

/// A thread's pause between two looks.
#[cold]
fn rest(looks: &mut u32) {
    if *looks < LOOKS_MAX {
        *looks += 1;
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use uruk_core::ExecutorAddr;
    use uruk_core::sync::Arc;

    const POINTERS: [ExecutorAddr; 4] =
        [ExecutorAddr::new(1), ExecutorAddr::new(2), ExecutorAddr::new(3), ExecutorAddr::new(4)];

    #[test]
    fn states_come_in_their_order() {
        let [lone, invoke, specptr, better] = POINTERS;
        let instance = CodeInstance::new();
        assert_eq!((instance.invoke(), instance.behind_invoke()), (None, None));
        assert_eq!(instance.update(better), Err(CodeInstanceState::Unset));
        assert_eq!(instance.publish_invoke(lone), Ok(()));
        let alone = CodeInstanceState::InvokeOnly { invoke: lone };
        assert_eq!((instance.read(), instance.behind_invoke()), (alone, None));
        assert_eq!(instance.publish_invoke(invoke), Err(alone));
        assert_eq!(instance.update(better), Err(alone));
        assert_eq!(instance.publish(invoke, specptr, CodeSignature::Boxed), Ok(()));
        let pair = CodeInstanceState::Boxed { invoke, specptr };
        assert_eq!(instance.read(), pair);
        assert_eq!(instance.publish_invoke(lone), Err(pair));
        assert_eq!(instance.publish(lone, better, CodeSignature::Specialized), Err(pair));
        assert_eq!(instance.update(better), Ok(()));
        assert_eq!(instance.read(), CodeInstanceState::Boxed { invoke, specptr: better });
        assert_eq!(instance.behind_invoke(), Some((better, CodeSignature::Boxed)));
    }

    #[test]
    fn of_many_who_publish_one_wins_and_all_are_told_the_same() {
        for _ in 0..200 {
            let instance = Arc::new(CodeInstance::new());
            let threads = POINTERS.map(|pointer| {
                let instance = instance.clone();
                thread::spawn(move || match instance.publish(pointer, pointer, CodeSignature::Specialized) {
                    Ok(()) => (1, instance.read()),
                    Err(there) => (0, there),
                })
            });
            let told = threads.map(|thread| thread.join().unwrap());
            assert_eq!(told.iter().map(|(won, _)| won).sum::<u32>(), 1);
            assert!(told.iter().all(|(_, state)| *state == instance.read()), "{told:?}");
        }
    }

    #[test]
    #[should_panic(expected = "code is not at the null address")]
    fn no_code_is_at_the_null_address() {
        let _ = CodeInstance::new().publish_invoke(ExecutorAddr::NULL);
    }
}
