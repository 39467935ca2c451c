//! The edge kinds of ELF AArch64: the expression of each, and its errors.
//!
//! In the expressions, as in AAELF64: `S` is the address of the symbol, `A` the addend, `P` the address of the field, `Page(x)` the address
//! `x` without its lowest twelve bits, `G` the address of the symbol's entry in the graph's global offset table, `GOT` the start of that
//! table, `L` the address of the symbol's stub (or of the symbol, if that can be reached), `R` the address of the symbol's pair of resolver
//! and argument, `T` the distance of a thread-local symbol from the thread pointer, where that is the same on every thread, `TG` the address
//! of a word that holds `T`.
//!
//! A field of an access is in units of the access: the value has to be a multiple of them.

use super::encode::{Form, Limits, StartOfValue};
use super::{Class, EdgeKind};

/// Facts about a kind beside its class.
pub(super) struct KindRow {
    pub(super) start: StartOfValue,
    pub(super) form: Form,
    name: &'static str,
}

/// The row of a kind.
pub(super) fn row(kind: EdgeKind) -> &'static KindRow {
    &ROWS[kind.index()]
}

pub(in crate::arch) fn kind_of_number(number: u8) -> Option<EdgeKind> {
    ALL.get(usize::from(number)).copied()
}

pub(in crate::arch) fn kind_name(kind: EdgeKind) -> &'static str {
    row(kind).name
}

/// Whether a field of the kind says where its target is, by itself or with the field of another instruction.
pub(super) fn is_place(kind: EdgeKind) -> bool {
    let is_back = matches!(row(kind).start, StartOfValue::DistanceBack);
    matches!(kind.class(), Class::Direct | Class::Near | Class::Branch) && !is_back
}

/// A line is a kind: its class, where its expression starts, the form of its field, and the relocation's name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $class:ident, $start:ident, $form:expr, $text:literal;)*) => {
        #[expect(non_camel_case_types, reason = "names of constants")]
        enum KindNumber {
            $($name,)*
        }

        $(
            $(#[$doc])*
            pub const $name: EdgeKind = EdgeKind::new(Class::$class, KindNumber::$name as u8);
        )*

        static ALL: &[EdgeKind] = &[$($name,)*];

        static ROWS: &[KindRow] = &[$(KindRow { start: StartOfValue::$start, form: $form, name: $text },)*];
    };
}

kinds! {
    /// A full pointer: `S + A : u64`.
    POINTER_64: Direct, Target, Form::data(8, Limits::Signed), "R_AARCH64_ABS64";
    /// A pointer in 32 bits: `S + A : u32 or i32`.
    POINTER_32: Direct, Target, Form::data(4, Limits::Either), "R_AARCH64_ABS32";
    /// A number of 16 bits: `S + A : u16 or i16`.
    POINTER_16: Direct, Target, Form::data(2, Limits::Either), "R_AARCH64_ABS16";
    /// A full distance: `S + A - P : i64`.
    DELTA_64: Direct, Distance, Form::data(8, Limits::Signed), "R_AARCH64_PREL64";
    /// A distance in data: `S + A - P : u32 or i32`.
    DELTA_32: Near, Distance, Form::data(4, Limits::Either), "R_AARCH64_PREL32";
    /// A distance in data: `S + A - P : u16 or i16`.
    DELTA_16: Direct, Distance, Form::data(2, Limits::Either), "R_AARCH64_PREL16";
    /// A distance back to the symbol, as a frame description entry stores it about its common entry: `P - S + A : i32`.
    NEGATIVE_DELTA_32: Direct, DistanceBack, Form::data(4, Limits::Signed), "distance to a common information entry";
    /// A call: `L + A - P`, within 128 MiB.
    BRANCH_26: Branch, Distance, Form::words(0, 26), "R_AARCH64_CALL26";
    /// A jump: as [`BRANCH_26`].
    JUMP_26: Branch, Distance, Form::words(0, 26), "R_AARCH64_JUMP26";
    /// A conditional branch: `L + A - P`, within 1 MiB.
    BRANCH_19: Branch, Distance, Form::words(5, 19), "R_AARCH64_CONDBR19";
    /// A branch that tests a bit: `L + A - P`, within 32 KiB.
    BRANCH_14: Branch, Distance, Form::words(5, 14), "R_AARCH64_TSTBR14";
    /// The distance of a function in data: `L + A - P : i32`.
    BRANCH_DELTA_32: Branch, Distance, Form::data(4, Limits::Signed), "R_AARCH64_PLT32";
    /// A load of a constant: `S + A - P`, within 1 MiB.
    LOAD_DELTA_19: Near, Distance, Form::words(5, 19), "R_AARCH64_LD_PREL_LO19";
    /// An address within 1 MiB: `S + A - P`.
    DELTA_21: Near, Distance, Form::adr(), "R_AARCH64_ADR_PREL_LO21";
    /// A page within 4 GiB: `Page(S + A) - Page(P)`.
    PAGE_21: Near, PageDistance, Form::adrp(Limits::Signed), "R_AARCH64_ADR_PREL_PG_HI21";
    /// A page, of which only the lower bits are stored: `Page(S + A) - Page(P)`.
    PAGE_21_PART: Direct, PageDistance, Form::adrp(Limits::Part), "R_AARCH64_ADR_PREL_PG_HI21_NC";
    /// The offset in the page: `(S + A) & 0xfff`.
    LOW_12: Direct, Target, Form::low_12(0, Limits::Part), "R_AARCH64_ADD_ABS_LO12_NC";
    /// As [`LOW_12`], of an access of one byte.
    ACCESS_8_LOW_12: Direct, Target, Form::low_12(0, Limits::Part), "R_AARCH64_LDST8_ABS_LO12_NC";
    /// As [`LOW_12`], of an access of two bytes.
    ACCESS_16_LOW_12: Direct, Target, Form::low_12(1, Limits::Part), "R_AARCH64_LDST16_ABS_LO12_NC";
    /// As [`LOW_12`], of an access of four bytes.
    ACCESS_32_LOW_12: Direct, Target, Form::low_12(2, Limits::Part), "R_AARCH64_LDST32_ABS_LO12_NC";
    /// As [`LOW_12`], of an access of eight bytes.
    ACCESS_64_LOW_12: Direct, Target, Form::low_12(3, Limits::Part), "R_AARCH64_LDST64_ABS_LO12_NC";
    /// As [`LOW_12`], of an access of sixteen bytes.
    ACCESS_128_LOW_12: Direct, Target, Form::low_12(4, Limits::Part), "R_AARCH64_LDST128_ABS_LO12_NC";
    /// Bits 0 to 15, all that there are: `S + A : u16`.
    GROUP_0: Direct, Target, Form::group_16(0, Limits::Unsigned), "R_AARCH64_MOVW_UABS_G0";
    /// Bits 0 to 15: `S + A`.
    GROUP_0_PART: Direct, Target, Form::group_16(0, Limits::Part), "R_AARCH64_MOVW_UABS_G0_NC";
    /// Bits 16 to 31, the last that there are: `S + A : u32`.
    GROUP_1: Direct, Target, Form::group_16(1, Limits::Unsigned), "R_AARCH64_MOVW_UABS_G1";
    /// Bits 16 to 31: `S + A`.
    GROUP_1_PART: Direct, Target, Form::group_16(1, Limits::Part), "R_AARCH64_MOVW_UABS_G1_NC";
    /// Bits 32 to 47, the last that there are: `S + A : u48`.
    GROUP_2: Direct, Target, Form::group_16(2, Limits::Unsigned), "R_AARCH64_MOVW_UABS_G2";
    /// Bits 32 to 47: `S + A`.
    GROUP_2_PART: Direct, Target, Form::group_16(2, Limits::Part), "R_AARCH64_MOVW_UABS_G2_NC";
    /// Bits 48 to 63: `S + A`.
    GROUP_3: Direct, Target, Form::group_16(3, Limits::Part), "R_AARCH64_MOVW_UABS_G3";
    /// The page of a pointer to the symbol: `Page(G + A) - Page(P)`.
    GOT_PAGE_21: GotEntry, PageDistance, Form::adrp(Limits::Signed), "R_AARCH64_ADR_GOT_PAGE";
    /// The offset of that pointer in its page: `(G + A) & 0xfff`.
    GOT_LOW_12: GotEntry, Target, Form::low_12(3, Limits::Part), "R_AARCH64_LD64_GOT_LO12_NC";
    /// The offset of that pointer from the page of the table, within 32 KiB: `G + A - Page(GOT)`.
    GOT_ENTRY_FROM_PAGE_15: GotEntry, FromTablePage, Form::table_word(), "R_AARCH64_LD64_GOTPAGE_LO15";
    /// The distance to that pointer: `G + A - P : i32`.
    GOT_ENTRY_DELTA_32: GotEntry, Distance, Form::data(4, Limits::Signed), "R_AARCH64_GOTPCREL32";
    /// The page of the pair of resolver and argument: `Page(R + A) - Page(P)`.
    TLS_RESOLVER_PAGE_21: TlsResolver, PageDistance, Form::adrp(Limits::Signed), "R_AARCH64_TLSDESC_ADR_PAGE21";
    /// The offset of the pair in its page, in a load of its function: `(R + A) & 0xfff`.
    TLS_RESOLVER_LOAD_LOW_12: TlsResolver, Target, Form::low_12(3, Limits::Part), "R_AARCH64_TLSDESC_LD64_LO12";
    /// The offset of the pair in its page: `(R + A) & 0xfff`.
    TLS_RESOLVER_LOW_12: TlsResolver, Target, Form::low_12(0, Limits::Part), "R_AARCH64_TLSDESC_ADD_LO12";
    /// The page of a word that holds the distance: `Page(TG + A) - Page(P)`. The initial-exec model.
    TLS_DISTANCE_ENTRY_PAGE_21: TlsDistanceEntry, PageDistance, Form::adrp(Limits::Signed), "R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21";
    /// The offset of that word in its page: `(TG + A) & 0xfff`.
    TLS_DISTANCE_ENTRY_LOW_12: TlsDistanceEntry, Target, Form::low_12(3, Limits::Part), "R_AARCH64_TLSIE_LD64_GOTTPREL_LO12_NC";
    /// Bits 12 to 23 of the distance from the thread pointer, the last that there are: `T + A : u24`. The local-exec model, as all that follow.
    TLS_DISTANCE_HIGH_12: TlsDistance, Target, Form::high_12(), "R_AARCH64_TLSLE_ADD_TPREL_HI12";
    /// The distance, in twelve bits: `T + A : u12`.
    TLS_DISTANCE_LOW_12: TlsDistance, Target, Form::low_12(0, Limits::Unsigned), "R_AARCH64_TLSLE_ADD_TPREL_LO12";
    /// Its lowest twelve bits: `T + A`.
    TLS_DISTANCE_LOW_12_PART: TlsDistance, Target, Form::low_12(0, Limits::Part), "R_AARCH64_TLSLE_ADD_TPREL_LO12_NC";
    /// The same, of an access of one byte.
    TLS_ACCESS_8_LOW_12: TlsDistance, Target, Form::low_12(0, Limits::Part), "R_AARCH64_TLSLE_LDST8_TPREL_LO12_NC";
    /// The same, of an access of two bytes.
    TLS_ACCESS_16_LOW_12: TlsDistance, Target, Form::low_12(1, Limits::Part), "R_AARCH64_TLSLE_LDST16_TPREL_LO12_NC";
    /// The same, of an access of four bytes.
    TLS_ACCESS_32_LOW_12: TlsDistance, Target, Form::low_12(2, Limits::Part), "R_AARCH64_TLSLE_LDST32_TPREL_LO12_NC";
    /// The same, of an access of eight bytes.
    TLS_ACCESS_64_LOW_12: TlsDistance, Target, Form::low_12(3, Limits::Part), "R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC";
    /// The same, of an access of sixteen bytes.
    TLS_ACCESS_128_LOW_12: TlsDistance, Target, Form::low_12(4, Limits::Part), "R_AARCH64_TLSLE_LDST128_TPREL_LO12_NC";
}
