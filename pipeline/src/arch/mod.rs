//! Processor architectures: each is a folder, and everything that depends on instructions stands in one.
//!
//! An architecture knows relocations, the form of fields, instructions that the linker may rewrite, and templates of code. It knows no
//! graph and no memory: bytes and numbers in, bytes and numbers out. [`Architecture`] lists the questions that it answers.
//!
//! The linker decides by the [`Class`] of an edge, and never by its number.
//!
//! **Architecture Invariant:** outside this folder no code names a relocation type or an edge kind of an architecture, and none spells an
//! instruction as bytes (`program-tests/tests/tidy/architectures.rs`). `host` is the architecture of this process, for code that runs here.

pub mod aarch64;
mod kind;
mod lazy;
pub mod x86_64;

pub use kind::{Class, EdgeKind};
pub(crate) use kind::{CodeField, DistanceLoad, FarForm, IfuncParts, Meaning, Operands, Overflow, SlotKind};
pub(crate) use lazy::{CALLS_AT, CodeTemplate, FieldTarget, LazyTemplates};
pub use x86_64::{CodeNeeds, Features, ProcessorLevel, ProcessorTarget};

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::host;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::host;

use std::fmt;

use object::elf::{Machine, RelocationType};

/// An architecture that the linker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// x86-64, as of the System V ABI.
    X86_64,
    /// AArch64, as of AAELF64.
    AArch64,
}

/// Answers each question by the function of that name in the folder of the architecture.
macro_rules! questions {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        impl Architecture {$(
            $(#[$meta])*
            #[inline]
            pub(crate) fn $name(self $(, $argument: $type)*) $(-> $answer)? {
                match self {
                    Self::X86_64 => x86_64::$name($($argument),*),
                    Self::AArch64 => aarch64::$name($($argument),*),
                }
            }
        )*}
    };
}

questions! {
    /// Its name, for messages.
    fn name() -> &'static str;
    /// Its number in the header of an object.
    fn machine() -> Machine;

    /// The meaning of a relocation type.
    fn meaning(number: RelocationType) -> Meaning;
    /// The size of a field of debug information. `None` for a relocation that has no place there.
    fn debug_field_bytes(number: RelocationType) -> Option<usize>;
    /// The name of a relocation type that has no edge kind, for messages.
    fn foreign_name(number: RelocationType) -> Box<str>;
    /// The name of an edge kind's relocation, for messages.
    fn kind_name(kind: EdgeKind) -> &'static str;
    /// The edge kind of that number.
    fn kind_of_number(number: u8) -> Option<EdgeKind>;
    /// How many bytes hold the field, from the offset of the edge on.
    fn field_bytes(kind: EdgeKind) -> usize;
    /// Computes the field of an edge and stores it at the start of `field`, which has [`field_bytes`](Self::field_bytes) at least.
    ///
    /// # Errors
    /// [`Overflow`] if the value does not fit; nothing is written then.
    fn encode(kind: EdgeKind, operands: &Operands, field: &mut [u8]) -> Result<(), Overflow>;
    /// The value of the field of an edge, before it is stored.
    fn value(kind: EdgeKind, operands: &Operands) -> i64;

    /// The kind of a full pointer in data.
    fn pointer() -> EdgeKind;
    /// The kind of a field that holds how far it is from a common information entry to the field.
    fn distance_back() -> EdgeKind;
    /// How far behind its target a field points, if it says where something is. `is_code` says whether the field lies in code.
    fn points_into(kind: EdgeKind, addend: i64, is_code: bool) -> Option<i64>;

    /// The form that the instruction with a field at `offset` has for a target that its field does not reach.
    fn far_form(bytes: &[u8], offset: usize, addend: i64) -> Option<FarForm>;
    /// From the symbol on, the place at which the operand of an instruction with this addend points.
    fn pointed_offset(addend: i64) -> i64;
    /// Turns an instruction of the form [`FarForm::Pointer`] into a load of the word at `pointer`. Says whether it did.
    fn load_pointer(bytes: &mut [u8], offset: usize, place: u64, pointer: u64) -> bool;
    /// Has an instruction that loads its operand from the global offset table refer to the symbol itself. Says whether it did.
    fn access_directly(kind: EdgeKind, bytes: &mut [u8], offset: usize, operands: &Operands) -> bool;

    /// Size of a stub.
    fn stub_bytes() -> u64;
    /// Writes the stub at `address` that jumps to the address in the word at `entry`.
    ///
    /// # Errors
    /// The distance, if the word is out of reach.
    fn write_stub(stub: &mut [u8], address: u64, entry: u64) -> Result<(), i64>;
    /// Size of the stub of an indirect function, with its first-call sequence.
    fn ifunc_stub_bytes() -> u64;
    /// Where the first-call sequence starts, in that stub.
    fn ifunc_first_call() -> u64;
    /// Writes the stub of an indirect function.
    ///
    /// # Errors
    /// The distance that does not fit.
    fn write_ifunc_stub(stub: &mut [u8], parts: IfuncParts) -> Result<(), i64>;
    /// Of a function that does nothing but answer an address: where the field of that address is in its code, and whether it may hold a
    /// distance in the code without a relocation. `None` for all others.
    fn answered_address(code: &[u8]) -> Option<(usize, bool)>;
    /// Size of an entry: a jump to a function anywhere.
    fn entry_bytes() -> usize;
    /// Writes an entry of a function.
    fn write_entry(entry: &mut [u8], function: u64);

    /// The templates of lazy functions.
    fn lazy_templates() -> &'static LazyTemplates;
    /// Has a stub of a group jump through the word at that byte of the group's table.
    fn write_table_offset(stub: &mut [u8], offset: u32);

    /// The use that an instruction makes of a thread-local variable's distance from the thread pointer, if it can take a detour instead.
    fn distance_load(kind: EdgeKind, bytes: &[u8], offset: usize, addend: i64) -> Option<DistanceLoad>;
    /// Size of a detour.
    fn detour_bytes() -> u64;
    /// Turns the instruction whose field is at `offset`, and at the address `place`, into a jump to `detour`. Says whether it did.
    fn write_detour_jump(bytes: &mut [u8], offset: usize, place: u64, detour: u64) -> bool;
    /// Writes the detour at `address`, which finds its pair at `pair`. `place` is the address of the instruction's field.
    ///
    /// # Errors
    /// The distance that is out of reach.
    fn write_detour(detour: &mut [u8], address: u64, load: DistanceLoad, pair: u64, place: u64) -> Result<(), i64>;

    /// Whether bytes between functions hold nothing that a program could read: zeros, traps and instructions that do nothing.
    fn is_padding(bytes: &[u8]) -> bool;
    /// Whether the code of a function begins with a jump over a part of itself, which may be data.
    fn begins_with_jump_over(code: &[u8]) -> bool;
    /// The start of the function around a fragment of `.init` or `.fini` that is aligned to `align`. `None` if the alignment is too large.
    fn fragment_start(align: u64) -> Option<&'static [u8]>;
    /// The end of that function.
    fn fragment_end() -> &'static [u8];
    /// Whether a fragment ends by returning itself.
    fn returns(fragment: &[u8]) -> bool;
    /// The code of start files: `_init`, `_fini` and `_start`, 16 bytes each.
    fn start_files() -> &'static [u8; 48];
}

impl Default for Architecture {
    /// That of this process.
    fn default() -> Self {
        Self::HOST
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Architecture {
    /// That of this process.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::AArch64 } else { Self::X86_64 };

    /// Its name to compilers, with the operating system.
    pub const fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::AArch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The architecture of a compiler's target. `None` for one that is not linked.
    pub fn of_triple(triple: &str) -> Option<Self> {
        match triple.split('-').next()? {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::AArch64),
            _ => None,
        }
    }

    /// The architecture of objects with this number in their header.
    pub(crate) fn of_machine(machine: u16) -> Option<Self> {
        [Self::X86_64, Self::AArch64].into_iter().find(|known| known.machine().0 == machine)
    }
}
