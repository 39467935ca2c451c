//! Templates of lazy functions, as an architecture gives them: stubs, the cold part that a first call goes through, and the part that counts
//! calls. `lazy/stubs.rs` puts them into a graph.
//!
//! A template says which fields it has, and what each leads to. An operand may need several: AArch64 names a page, and a place in it.
//!
//! **Holds.** A jump through a word acquires: code that is reached by it sees all that came before the word was stored with Release.

use super::{CodeField, EdgeKind};

/// The templates of an architecture.
#[derive(Debug)]
pub(crate) struct LazyTemplates {
    /// A stub that jumps through a word of its own.
    pub(crate) slot_stub: CodeTemplate,
    /// A stub that jumps through a word of the table that its group has at the moment. It has the first word, until
    /// [`Architecture::write_table_offset`](super::Architecture::write_table_offset) gives it another.
    pub(crate) group_stub: CodeTemplate,
    /// Hands the descriptor to the thunk.
    pub(crate) cold: CodeTemplate,
    /// Counts a call, and jumps on to the body, or to the cold part if it was the last.
    pub(crate) counting: CodeTemplate,
    /// The common entry of call frame information: in stubs and cold parts the stack is as it was when they were called.
    pub(crate) common_frame: [u8; 24],
    /// The kind of a distance from a field of 32 bits.
    pub(crate) distance: EdgeKind,
}

/// A piece of code, and its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeTemplate {
    pub(crate) code: &'static [u8],
    pub(crate) fields: &'static [(FieldTarget, CodeField)],
}

/// The target of a field in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldTarget {
    /// The word that a stub jumps through; of a group, the word that has the address of the table.
    Word,
    /// The word that has the address of the thunk.
    Thunk,
    /// The descriptor of the stub.
    Descriptor,
    /// The words of a counting part: the address of the body, and [`CALLS_AT`] bytes on how many calls are left, in 32 bits.
    Counted,
    /// The cold part of the same stub.
    Cold,
}

/// See [`FieldTarget::Counted`].
pub(crate) const CALLS_AT: i64 = 8;

impl LazyTemplates {
    /// Call frame information of stubs and cold parts of these lengths: an entry each behind the common one.
    pub(crate) fn frames_of(&self, stub_bytes: usize, cold_bytes: usize) -> [u8; 64] {
        // The rest of the entry is 16 bytes, and its distance back to the common entry is told from behind the length.
        let [mut stubs, mut cold] = [28, 48].map(|back| [16_u32, back, 0, 0, 0]);
        // A graph of more than 2 GiB is refused anyway.
        [stubs[3], cold[3]] = [stub_bytes, cold_bytes].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let mut frames = [0; 64];
        frames[..24].copy_from_slice(&self.common_frame);
        for (place, number) in frames[24..].chunks_exact_mut(4).zip(stubs.into_iter().chain(cold)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        frames
    }

    /// Where the entries of the stubs and of the cold parts say where that code begins.
    pub(crate) fn frames_begin(&self) -> [CodeField; 2] {
        [32, 52].map(|offset| CodeField { offset, kind: self.distance, addend: 0 })
    }
}
