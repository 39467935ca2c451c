//! The edge kinds of ELF x86-64: the meaning of each, the expression of its field, and the errors of that.
//!
//! In the expressions, as in the psABI: `S` is the address of the symbol, `A` the addend, `P` the address of
//! the field, `G` the address of the symbol's entry in the graph's global offset table, `GOT` the start of that
//! table, `L` the address of the symbol's stub (or of the symbol, if that can be reached), `Z` the symbol's
//! size, `D` the address of the `tls_index` descriptor of a thread-local symbol, `M` the address of the
//! descriptor of the graph's own thread-local image, `O` the symbol's offset in the image of its module, `T` the
//! distance of a thread-local symbol from the thread pointer, where that is the same on every thread, `TG` the address
//! of a word that holds `T`, `R` the address of the symbol's pair of resolver and argument.
//!
//! Source: System V psABI for AMD64, "Relocation Types"; JITLink `x86_64::EdgeKind_x86_64`.

use super::encode::Field::{self, Either, Signed, Unsigned};
use super::encode::ValueStart;
use super::{Class, EdgeKind};

/// Facts about a kind beside its class.
pub(super) struct Row {
    pub(super) start: ValueStart,
    pub(super) field: Field,
    name: &'static str,
}

/// The row of a kind.
pub(super) fn row(kind: EdgeKind) -> &'static Row {
    &ROWS[kind.index()]
}

pub(in crate::arch) fn kind_of_number(number: u8) -> Option<EdgeKind> {
    ALL.get(usize::from(number)).copied()
}

pub(in crate::arch) fn kind_name(kind: EdgeKind) -> &'static str {
    row(kind).name
}

/// A line is a kind: its class, where its expression starts, the form of its field, and the relocation's name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $class:ident, $start:ident, $field:expr, $text:literal;)*) => {
        #[expect(non_camel_case_types, reason = "names of constants")]
        enum Number {
            $($name,)*
        }

        $(
            $(#[$doc])*
            pub const $name: EdgeKind = EdgeKind::new(Class::$class, Number::$name as u8);
        )*

        static ALL: &[EdgeKind] = &[$($name,)*];

        static ROWS: &[Row] = &[$(Row { start: ValueStart::$start, field: $field, name: $text },)*];
    };
}

kinds! {
    /// A full pointer. `R_X86_64_64`.
    ///
    /// *Fixup expression:* `S + A : u64`
    POINTER_64: Direct, Target, Signed(8), "R_X86_64_64";
    /// A pointer in the lowest 4 GiB. `R_X86_64_32`.
    ///
    /// *Fixup expression:* `S + A : u32`
    ///
    /// *Errors:* the value needs more than 32 bits: the object lies below 2 GiB, and the symbol is a variable that lies
    /// elsewhere (see `low.rs`).
    POINTER_32: LowAddress, Target, Unsigned(4), "R_X86_64_32";
    /// A pointer in the lowest or highest 2 GiB. `R_X86_64_32S`.
    ///
    /// *Fixup expression:* `S + A : i32`
    ///
    /// *Errors:* the value needs more than 32 bits; see [`POINTER_32`].
    POINTER_32_SIGNED: LowAddress, Target, Signed(4), "R_X86_64_32S";
    /// A 16-bit number. `R_X86_64_16`.
    ///
    /// *Fixup expression:* `S + A : u16 or i16`
    ///
    /// *Errors:* the value fits neither.
    POINTER_16: Direct, Target, Either(2), "R_X86_64_16";
    /// An 8-bit number. `R_X86_64_8`.
    ///
    /// *Fixup expression:* `S + A : u8 or i8`
    ///
    /// *Errors:* the value fits neither.
    POINTER_8: Direct, Target, Either(1), "R_X86_64_8";
    /// A full distance from the field. `R_X86_64_PC64`.
    ///
    /// *Fixup expression:* `S + A - P : i64`
    DELTA_64: Direct, Distance, Signed(8), "R_X86_64_PC64";
    /// A distance from the field. `R_X86_64_PC32`.
    ///
    /// *Fixup expression:* `S + A - P : i32`; `L + A - P` where the field belongs to a call or jump;
    /// where it belongs to a `lea` and `S` is out of reach, that becomes a `mov` of a pointer to `S + A + 4`.
    ///
    /// *Errors:* the symbol is more than 2 GiB away and the field belongs to another instruction.
    DELTA_32: Near, Distance, Signed(4), "R_X86_64_PC32";
    /// A distance from the field. `R_X86_64_PC16`.
    ///
    /// *Fixup expression:* `S + A - P : i16`
    ///
    /// *Errors:* the symbol is more than 32 KiB away.
    DELTA_16: Direct, Distance, Signed(2), "R_X86_64_PC16";
    /// A distance from the field. `R_X86_64_PC8`.
    ///
    /// *Fixup expression:* `S + A - P : i8`
    ///
    /// *Errors:* the symbol is more than 128 bytes away.
    DELTA_8: Direct, Distance, Signed(1), "R_X86_64_PC8";
    /// A distance back to the symbol, as a frame description entry stores it about its common entry.
    ///
    /// *Fixup expression:* `P - S + A : i32`
    ///
    /// *Errors:* the two are more than 2 GiB apart.
    NEGATIVE_DELTA_32: Direct, DistanceBack, Signed(4), "distance to a common information entry";
    /// The displacement of a call or jump. `R_X86_64_PLT32`.
    ///
    /// *Fixup expression:* `L + A - P : i32`
    ///
    /// *Errors:* a definition of the graph itself is more than 2 GiB away.
    BRANCH_32: Branch, Distance, Signed(4), "R_X86_64_PLT32";
    /// The distance to a pointer to the symbol. `R_X86_64_GOTPCREL`, `R_X86_64_CODE_5_GOTPCRELX`,
    /// `R_X86_64_CODE_6_GOTPCRELX`.
    ///
    /// *Fixup expression:* `G + A - P : i32`
    ///
    /// *Errors:* the table is more than 2 GiB away from the code.
    GOT_ENTRY_DELTA_32: GotEntry, Distance, Signed(4), "R_X86_64_GOTPCREL";
    /// As [`GOT_ENTRY_DELTA_32`], of an instruction that the linker may rewrite. `R_X86_64_GOTPCRELX`,
    /// `R_X86_64_REX_GOTPCRELX`, `R_X86_64_CODE_4_GOTPCRELX`.
    ///
    /// *Fixup expression:* `S + A - P : i32` after turning `mov` into `lea` or an indirect branch into a
    /// direct one, if `S` can be reached; else `G + A - P : i32`
    ///
    /// *Errors:* as [`GOT_ENTRY_DELTA_32`].
    GOT_ENTRY_DELTA_32_RELAXABLE: GotEntry, Distance, Signed(4), "R_X86_64_GOTPCRELX";
    /// The full distance to a pointer to the symbol. `R_X86_64_GOTPCREL64`.
    ///
    /// *Fixup expression:* `G + A - P : i64`
    GOT_ENTRY_DELTA_64: GotEntry, Distance, Signed(8), "R_X86_64_GOTPCREL64";
    /// The offset in the table of a pointer to the symbol. `R_X86_64_GOT32`.
    ///
    /// *Fixup expression:* `G - GOT + A : i32`
    ///
    /// *Errors:* the value needs more than 32 bits.
    GOT_ENTRY_OFFSET_32: GotEntry, FromTable, Signed(4), "R_X86_64_GOT32";
    /// The offset in the table of a pointer to the symbol. `R_X86_64_GOT64`, `R_X86_64_GOTPLT64`.
    ///
    /// *Fixup expression:* `G - GOT + A : i64`
    GOT_ENTRY_OFFSET_64: GotEntry, FromTable, Signed(8), "R_X86_64_GOT64";
    /// The distance to the table, independent of the symbol. `R_X86_64_GOTPC32`.
    ///
    /// *Fixup expression:* `GOT + A - P : i32`
    ///
    /// *Errors:* the table is more than 2 GiB away from the code.
    GOT_DELTA_32: GotBase, TableDistance, Signed(4), "R_X86_64_GOTPC32";
    /// The full distance to the table, independent of the symbol. `R_X86_64_GOTPC64`.
    ///
    /// *Fixup expression:* `GOT + A - P : i64`
    GOT_DELTA_64: GotBase, TableDistance, Signed(8), "R_X86_64_GOTPC64";
    /// The distance of the symbol from the table. `R_X86_64_GOTOFF64`.
    ///
    /// *Fixup expression:* `S + A - GOT : i64`
    OFFSET_FROM_GOT_64: Direct, FromTable, Signed(8), "R_X86_64_GOTOFF64";
    /// The distance of a function from the table. `R_X86_64_PLTOFF64`. Every function can be reached, so no
    /// stub is needed.
    ///
    /// *Fixup expression:* `S + A - GOT : i64`
    BRANCH_OFFSET_FROM_GOT_64: Direct, FromTable, Signed(8), "R_X86_64_PLTOFF64";
    /// The distance to the descriptor of a thread-local variable. `R_X86_64_TLSGD`.
    ///
    /// *Fixup expression:* `D + A - P : i32`; where `D` is out of reach the `lea` becomes a `mov` of a
    /// pointer to `D`
    ///
    /// *Errors:* the symbol is not thread-local; the descriptor is out of reach and the instruction is not
    /// the `lea` of the psABI's sequence.
    TLS_DESCRIPTOR_DELTA_32: TlsDescriptor, Distance, Signed(4), "R_X86_64_TLSGD";
    /// The distance to the descriptor of the graph's own thread-local image. `R_X86_64_TLSLD`.
    ///
    /// *Fixup expression:* `M + A - P : i32`
    ///
    /// *Errors:* the symbol is not thread-local, or belongs to a module that cannot be told.
    TLS_MODULE_DELTA_32: TlsModule, Distance, Signed(4), "R_X86_64_TLSLD";
    /// The offset of a thread-local variable in its module. `R_X86_64_DTPOFF32`.
    ///
    /// *Fixup expression:* `O + A : i32`
    ///
    /// *Errors:* the symbol is not thread-local; it belongs to another module; the offset needs more bits.
    TLS_OFFSET_32: TlsOffset, Target, Signed(4), "R_X86_64_DTPOFF32";
    /// The offset of a thread-local variable in its module. `R_X86_64_DTPOFF64`.
    ///
    /// *Fixup expression:* `O + A : i64`
    ///
    /// *Errors:* the symbol is not thread-local, or belongs to another module.
    TLS_OFFSET_64: TlsOffset, Target, Signed(8), "R_X86_64_DTPOFF64";
    /// The distance of a thread-local variable from the thread pointer. `R_X86_64_TPOFF32`, the local-exec model.
    ///
    /// *Fixup expression:* `T + A : i32`
    ///
    /// *Errors:* the symbol is not thread-local; its distance is not the same on every thread.
    TLS_DISTANCE_32: TlsDistance, Target, Signed(4), "R_X86_64_TPOFF32";
    /// The distance of a thread-local variable from the thread pointer. `R_X86_64_TPOFF64`.
    ///
    /// *Fixup expression:* `T + A : i64`
    ///
    /// *Errors:* as [`TLS_DISTANCE_32`].
    TLS_DISTANCE_64: TlsDistance, Target, Signed(8), "R_X86_64_TPOFF64";
    /// The distance to a word that holds a variable's distance from the thread pointer, the initial-exec model.
    /// `R_X86_64_CODE_4_GOTTPOFF`, `R_X86_64_CODE_5_GOTTPOFF`, `R_X86_64_CODE_6_GOTTPOFF`.
    ///
    /// *Fixup expression:* `TG + A - P : i32`
    ///
    /// *Errors:* as [`TLS_DISTANCE_32`]; the table is more than 2 GiB away from the code.
    TLS_DISTANCE_ENTRY_DELTA_32: TlsDistanceEntry, Distance, Signed(4), "R_X86_64_CODE_4_GOTTPOFF";
    /// As [`TLS_DISTANCE_ENTRY_DELTA_32`], of an instruction that the linker may rewrite. `R_X86_64_GOTTPOFF`.
    ///
    /// *Fixup expression:* `TG + A - P : i32`; where threads do not agree on `T`, the `mov` or `add` becomes a jump to
    /// code that finds it on each
    ///
    /// *Errors:* as [`TLS_DISTANCE_ENTRY_DELTA_32`], if it is another instruction.
    TLS_DISTANCE_ENTRY_DELTA_32_RELAXABLE: TlsDistanceEntry, Distance, Signed(4), "R_X86_64_GOTTPOFF";
    /// The distance to the pair of a resolver and its argument. `R_X86_64_GOTPC32_TLSDESC`,
    /// `R_X86_64_CODE_4_GOTPC32_TLSDESC` and so on. The call through the pair may be anywhere behind it, and stays as it is.
    ///
    /// *Fixup expression:* `R + A - P : i32`
    ///
    /// *Errors:* the symbol is not thread-local; the table is more than 2 GiB away from the code.
    TLS_RESOLVER_DELTA_32: TlsResolver, Distance, Signed(4), "R_X86_64_GOTPC32_TLSDESC";
    /// The size of the symbol. `R_X86_64_SIZE32`.
    ///
    /// *Fixup expression:* `Z + A : u32`
    ///
    /// *Errors:* the size needs more than 32 bits, or the symbol is defined elsewhere.
    SIZE_32: Size, Target, Unsigned(4), "R_X86_64_SIZE32";
    /// The size of the symbol. `R_X86_64_SIZE64`.
    ///
    /// *Fixup expression:* `Z + A : u64`
    ///
    /// *Errors:* the symbol is defined elsewhere.
    SIZE_64: Size, Target, Unsigned(8), "R_X86_64_SIZE64";
}
