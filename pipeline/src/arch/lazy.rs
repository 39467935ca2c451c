//! Templates of lazy functions, as an architecture gives them: stubs, the cold part that a first call goes through, and the part that counts
//! calls. `lazy/stubs.rs` puts them into a graph.
//!
//! A template says which fields it has, and what each leads to. An operand may need several: AArch64 names a page, and a place in it.
//!
//! **Holds.** A jump through a word acquires: code that is reached by it sees all that came before the word was stored with Release.

use super::CodeField;

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
    /// Call frame information: a common entry, an entry of all stubs, and one of all counting and cold parts.
    pub(crate) frames: [u8; 64],
    /// Where the entries say where the code begins. The length of the code stands behind that.
    pub(crate) frames_stubs: CodeField,
    pub(crate) frames_cold: CodeField,
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
    /// Call frame information of stubs and cold parts of these lengths.
    pub(crate) fn frames_of(&self, stub_bytes: usize, cold_bytes: usize) -> [u8; 64] {
        let mut frames = self.frames;
        for (field, bytes) in [(self.frames_stubs, stub_bytes), (self.frames_cold, cold_bytes)] {
            // A graph of more than 2 GiB is refused anyway.
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            frames[field.offset as usize + 4..][..4].copy_from_slice(&bytes.to_le_bytes());
        }
        frames
    }
}
