//! The text of a name with its counts, in one allocation that its last owner frees.
//!
//! ```text
//!    0        8       12      16            16 + len
//!    | count  | given | len   | text ...    | 0 |
//! ```
//!
//! The NUL at the end is for C, which is given a text without a copy.
//!
//! The pool owns a text through its one [`Pooled`], everybody else through [`Handle`]s. A handle that is cloned or dropped moves
//! `count`, by an atomic step. One that the pool gives out moves `given`, by a plain store: only the owner of the `Pooled` gives.
//!
//! | what happens | `count` | `given` |
//! |---|---|---|
//! | a text is made | [`POOL`] | 0 |
//! | the pool gives a handle | | + 1 |
//! | a handle is cloned | + 1 | |
//! | a handle is dropped | - 1 | |
//! | the pool lets the text go | - `POOL` + `given` | has no meaning any more |
//!
//! So there are `count + given - POOL` handles while the pool has the text, and `count` of them afterwards. `count` comes to 0
//! once: when the last owner, a handle or the pool, has gone. Dropping a handle takes nothing away from what the pool has given
//! and not yet told, as `POOL` is more than any such number.
//!
//! **Dead** is a text of which `count + given == POOL`. Only the pool could make another handle of it. The value read of
//! `count` may be old, and still no live text looks dead. `given` is the pool's own and exact. `count` gains for each cloned
//! handle before it loses that handle. So if it has lost as many as were given and gained, all handles are gone, and none is
//! left to clone.
//!
//! Model: `loom-tests/tests/models/symbol_name.rs`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::CStr;
use std::ptr::NonNull;

use super::count::{Count, Given};
use crate::sync::atomic::Ordering;
use crate::sync::weakened;

/// The head of a text in memory.
#[repr(C)]
struct Head {
    count: Count,
    given: Given,
    len: u32,
}

/// The pool's part of `count`: far from 0, however many given handles are dropped, and out of reach for new ones.
const POOL: u64 = 1 << 62;

/// A text as its pool holds it; there is one of each.
pub(super) struct Pooled(Text);

/// One of the handles of a text.
pub(super) struct Handle(Text);

/// A pointer to a text. The owner of one owns a part of the count there.
struct Text(NonNull<Head>);

// SAFETY: what lies at the address is read by any thread, and changed through atomics alone. The thread that frees it comes after
// all others, see `Text::leave`.
unsafe impl Send for Text {}
// SAFETY: as for `Send`.
unsafe impl Sync for Text {}

impl Pooled {
    pub(super) fn new(text: &str) -> Self {
        let len = u32::try_from(text.len()).expect("a name is shorter than 4 GiB");
        let layout = layout(text.len());
        // SAFETY: the layout has room for a head at least.
        let memory = unsafe { alloc(layout) }.cast::<Head>();
        let Some(head) = NonNull::new(memory) else { handle_alloc_error(layout) };
        // SAFETY: the memory is as large and as aligned as `layout` says, a head and behind it room for the text and a NUL, and
        // nothing else points to it.
        unsafe {
            head.write(Head { count: Count::new(POOL), given: Given::new(0), len });
            let start = head.add(1).cast::<u8>();
            start.copy_from_nonoverlapping(NonNull::from(text).cast(), text.len());
            start.add(text.len()).write(0);
        }
        Self(Text(head))
    }

    #[inline]
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Says that the text will be looked at and then given: has its line of the cache brought here to be written.
    ///
    /// A line that another thread wrote last comes with the first look at it, to be read; the store that follows has to ask all others
    /// again. Without this `intern_hit` takes 35.6 ns instead of 20.7 on two threads of a quiet machine.
    #[inline(always)]
    pub(super) fn fetch_to_give(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads and writes nothing that the program could see, and faults at no address; the registers, the flags
        // and the stack stay as they are. A processor that does not know it does nothing.
        unsafe {
            std::arch::asm!(
                "prefetchw byte ptr [{}]",
                in(reg) self.0.0.addr().get(),
                options(nomem, nostack, preserves_flags)
            );
        }
    }

    /// Gives one more handle. The exclusive borrow makes a plain store enough.
    #[inline]
    pub(super) fn give(&mut self) -> Handle {
        // Relaxed, here and below: `given` has one owner, and what it says to others is a hint.
        let mut given = self.0.given().load(Ordering::Relaxed);
        if given == u32::MAX {
            given = self.tell_given(given);
        }
        self.0.given().store(given + 1, Ordering::Relaxed);
        Handle(Text(self.0.0))
    }

    /// Moves what was given to `count`, before there is no more room for it.
    #[cold]
    fn tell_given(&mut self, given: u32) -> u32 {
        // Relaxed: nothing is freed on the strength of more owners.
        self.0.count().fetch_add(given.into(), Ordering::Relaxed);
        0
    }

    /// Whether there is no handle, and so will be none before the next is given.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        // Relaxed: see the head of this file. `Text::leave` and `free` order all reads by owners before the text is freed.
        let count = self.0.count().load(Ordering::Relaxed);
        count + u64::from(self.0.given().load(Ordering::Relaxed)) == POOL
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // Relaxed: `given` is ours.
        let given = self.0.given().load(Ordering::Relaxed);
        // SAFETY: this is all that the pool holds of the count, given up once.
        unsafe { self.0.leave(POOL - u64::from(given)) };
    }
}

impl Handle {
    #[inline]
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text up to its first NUL, as C reads it.
    pub(super) fn as_c_str(&self) -> &CStr {
        let text = self.as_str();
        // SAFETY: a NUL lies behind the text, in one allocation with it; both were written before anybody else knew of them, and
        // never change.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.text().as_ptr(), text.len() + 1) };
        CStr::from_bytes_until_nul(bytes).unwrap_or_default()
    }

    /// Where the text begins.
    #[inline]
    pub(super) fn address(&self) -> usize {
        self.0.text().addr().get()
    }

    /// How many handles there are, and one for the pool: a hint, as others may come and go meanwhile.
    pub(super) fn owners(&self) -> u64 {
        // Relaxed: a hint.
        let count = self.0.count().load(Ordering::Relaxed);
        if count < POOL / 2 {
            return count;
        }
        // Relaxed: as above.
        (count + u64::from(self.0.given().load(Ordering::Relaxed)) + 1).saturating_sub(POOL)
    }
}

impl Clone for Handle {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: who clones has a handle, so nothing is freed meanwhile; and 2^62 handles are more than memory holds, or than
        // are forgotten in a hundred years.
        self.0.count().fetch_add(1, Ordering::Relaxed);
        Self(Text(self.0.0))
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle was counted when it was made, and goes once.
        unsafe { self.0.leave(1) };
    }
}

impl Text {
    #[inline]
    fn count(&self) -> &Count {
        // SAFETY: each `Text` belongs to an owner of a part of the count, so the head is there.
        unsafe { &(*self.0.as_ptr()).count }
    }

    #[inline]
    fn given(&self) -> &Given {
        // SAFETY: as in `count`.
        unsafe { &(*self.0.as_ptr()).given }
    }

    /// Where the text begins.
    #[inline]
    fn text(&self) -> NonNull<u8> {
        // SAFETY: the text lies behind the head, in one allocation with it.
        unsafe { self.0.add(1) }.cast()
    }

    #[inline]
    fn as_str(&self) -> &str {
        #[cfg(any(uruk_loom, uruk_shuttle))]
        self.count().is_read();
        // SAFETY: as in `count`. The length and the text were written before anybody else knew of them, come from a `str`, and
        // never change.
        unsafe {
            let len = (*self.0.as_ptr()).len as usize;
            std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.text().as_ptr(), len))
        }
    }

    /// Gives up so much of the count, and frees the text if that was all.
    ///
    /// # Safety
    /// The caller owns so much of the count, and looks at the text no more.
    #[inline]
    unsafe fn leave(&self, share: u64) {
        // ordering[name-left]: Release. Pairs with the Acquire in `free`; what an owner did with a text comes before it is freed.
        let release =
            if weakened("symbol_name::leaves_unordered") { Ordering::Relaxed } else { Ordering::Release };
        if self.count().fetch_sub(share, release) == share {
            // SAFETY: nothing is left of the count, so there are no owners, and only owners make others.
            unsafe { self.free() };
        }
    }

    /// # Safety
    /// There are no owners, and the caller was the last.
    #[cold]
    #[inline(never)]
    unsafe fn free(&self) {
        // ordering[name-left]: Acquire. Pairs with the Release in `leave` of each owner, all of which are behind the 0 that is read
        // here. A load and not a fence, which the thread sanitizer would not understand.
        let acquire =
            if weakened("symbol_name::frees_unordered") { Ordering::Relaxed } else { Ordering::Acquire };
        self.count().load(acquire);
        // SAFETY: no other thread looks at it, see above; it was allocated with the layout of its length.
        unsafe {
            let layout = layout((*self.0.as_ptr()).len as usize);
            #[cfg(uruk_loom)]
            (*self.0.as_ptr()).count.end();
            self.0.drop_in_place();
            dealloc(self.0.as_ptr().cast(), layout);
        }
    }
}

/// A head, so many bytes behind it, and a NUL.
fn layout(len: usize) -> Layout {
    let size = (size_of::<Head>() + 1).checked_add(len).expect("a text is in memory, with room to spare");
    Layout::from_size_align(size, align_of::<Head>()).expect("a text is in memory, with room to spare")
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_dead_when_its_handles_are_gone_wherever_they_came_from() {
        let mut pooled = Pooled::new("f");
        assert!(pooled.is_dead());
        let (given, other) = (pooled.give(), pooled.give());
        let cloned = given.clone();
        assert_eq!(cloned.owners(), 4);
        drop((given, other));
        assert!(!pooled.is_dead());
        assert_eq!((cloned.owners(), cloned.as_str(), pooled.as_str()), (2, "f", "f"));
        drop(cloned);
        assert!(pooled.is_dead());
    }

    #[test]
    fn handles_own_what_the_pool_has_let_go() {
        let mut pooled = Pooled::new("orphan");
        let (first, second) = (pooled.give(), pooled.give());
        drop(first);
        drop(pooled);
        assert_eq!((second.owners(), second.as_str()), (1, "orphan"));
        assert_eq!(second.clone().owners(), 2);
    }

    #[test]
    fn more_handles_are_given_than_there_is_room_to_note() {
        let mut pooled = Pooled::new("");
        let early = pooled.give();
        pooled.0.given().store(u32::MAX, Ordering::Relaxed);
        pooled.0.count().fetch_sub(u64::from(u32::MAX) - 1, Ordering::Relaxed);
        let late = pooled.give();
        assert_eq!((late.owners(), pooled.0.given().load(Ordering::Relaxed)), (3, 1));
        drop((early, late));
        assert!(pooled.is_dead());
    }

    #[test]
    fn a_head_is_two_words() {
        assert_eq!((size_of::<Head>(), size_of::<Option<Pooled>>()), (16, 8));
    }
}
