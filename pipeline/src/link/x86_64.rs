//! The edge kinds of ELF x86-64: what each means, how its field is computed, and when that fails.
//!
//! Pure: bytes and numbers in, bytes out. Which of an edge's possible targets is used (the symbol itself, its
//! entry in the global offset table, its stub) is decided in `fixup.rs`; instructions that can be simplified
//! are rewritten in `relax.rs`.
//!
//! In the expressions, as in the psABI: `S` is the address of the symbol, `A` the addend, `P` the address of
//! the field, `G` the address of the symbol's entry in the graph's global offset table, `GOT` the start of that
//! table, `L` the address of the symbol's stub (or of the symbol, if that can be reached), `Z` the symbol's
//! size, `D` the address of the `tls_index` descriptor of a thread-local symbol, `M` the address of the
//! descriptor of the graph's own thread-local image, `O` the symbol's offset in the image of its module, `T` the
//! distance of a thread-local symbol from the thread pointer, where that is the same on every thread, `TG` the address
//! of a word that holds `T`, `R` the address of the symbol's pair of resolver and argument.

/// How the field of an edge is computed.
///
/// Source: System V psABI for AMD64, "Relocation Types"; JITLink `x86_64::EdgeKind_x86_64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// A full pointer. `R_X86_64_64`.
    ///
    /// *Fixup expression:* `S + A : u64`
    Pointer64,
    /// A pointer in the lowest 4 GiB. `R_X86_64_32`.
    ///
    /// *Fixup expression:* `S + A : u32`
    ///
    /// *Errors:* the value needs more than 32 bits: the object lies below 2 GiB, and the symbol is a variable that lies
    /// elsewhere (see `low.rs`).
    Pointer32,
    /// A pointer in the lowest or highest 2 GiB. `R_X86_64_32S`.
    ///
    /// *Fixup expression:* `S + A : i32`
    ///
    /// *Errors:* the value needs more than 32 bits; see [`EdgeKind::Pointer32`].
    Pointer32Signed,
    /// A 16-bit number. `R_X86_64_16`.
    ///
    /// *Fixup expression:* `S + A : u16 or i16`
    ///
    /// *Errors:* the value fits neither.
    Pointer16,
    /// An 8-bit number. `R_X86_64_8`.
    ///
    /// *Fixup expression:* `S + A : u8 or i8`
    ///
    /// *Errors:* the value fits neither.
    Pointer8,
    /// A full distance from the field. `R_X86_64_PC64`.
    ///
    /// *Fixup expression:* `S + A - P : i64`
    Delta64,
    /// A distance from the field. `R_X86_64_PC32`.
    ///
    /// *Fixup expression:* `S + A - P : i32`; `L + A - P` where the field belongs to a call or jump;
    /// where it belongs to a `lea` and `S` is out of reach, that becomes a `mov` of a pointer to `S + A + 4`.
    ///
    /// *Errors:* the symbol is more than 2 GiB away and the field belongs to another instruction.
    Delta32,
    /// A distance from the field. `R_X86_64_PC16`.
    ///
    /// *Fixup expression:* `S + A - P : i16`
    ///
    /// *Errors:* the symbol is more than 32 KiB away.
    Delta16,
    /// A distance from the field. `R_X86_64_PC8`.
    ///
    /// *Fixup expression:* `S + A - P : i8`
    ///
    /// *Errors:* the symbol is more than 128 bytes away.
    Delta8,
    /// A distance back to the symbol: what a frame description entry stores about its common entry.
    ///
    /// *Fixup expression:* `P - S + A : i32`
    ///
    /// *Errors:* the two are more than 2 GiB apart.
    NegativeDelta32,
    /// The displacement of a call or jump. `R_X86_64_PLT32`.
    ///
    /// *Fixup expression:* `L + A - P : i32`
    ///
    /// *Errors:* a definition of the graph itself is more than 2 GiB away.
    Branch32,
    /// The distance to a pointer to the symbol. `R_X86_64_GOTPCREL`, `R_X86_64_CODE_5_GOTPCRELX`,
    /// `R_X86_64_CODE_6_GOTPCRELX`.
    ///
    /// *Fixup expression:* `G + A - P : i32`
    ///
    /// *Errors:* the table is more than 2 GiB away from the code.
    GotEntryDelta32,
    /// As [`EdgeKind::GotEntryDelta32`], of an instruction that the linker may rewrite. `R_X86_64_GOTPCRELX`,
    /// `R_X86_64_REX_GOTPCRELX`, `R_X86_64_CODE_4_GOTPCRELX`.
    ///
    /// *Fixup expression:* `S + A - P : i32` after turning `mov` into `lea` or an indirect branch into a
    /// direct one, if `S` can be reached; else `G + A - P : i32`
    ///
    /// *Errors:* as [`EdgeKind::GotEntryDelta32`].
    GotEntryDelta32Relaxable,
    /// The full distance to a pointer to the symbol. `R_X86_64_GOTPCREL64`.
    ///
    /// *Fixup expression:* `G + A - P : i64`
    GotEntryDelta64,
    /// The offset in the table of a pointer to the symbol. `R_X86_64_GOT32`.
    ///
    /// *Fixup expression:* `G - GOT + A : i32`
    ///
    /// *Errors:* the value needs more than 32 bits.
    GotEntryOffset32,
    /// The offset in the table of a pointer to the symbol. `R_X86_64_GOT64`, `R_X86_64_GOTPLT64`.
    ///
    /// *Fixup expression:* `G - GOT + A : i64`
    GotEntryOffset64,
    /// The distance to the table, whatever the symbol. `R_X86_64_GOTPC32`.
    ///
    /// *Fixup expression:* `GOT + A - P : i32`
    ///
    /// *Errors:* the table is more than 2 GiB away from the code.
    GotDelta32,
    /// The full distance to the table, whatever the symbol. `R_X86_64_GOTPC64`.
    ///
    /// *Fixup expression:* `GOT + A - P : i64`
    GotDelta64,
    /// The distance of the symbol from the table. `R_X86_64_GOTOFF64`.
    ///
    /// *Fixup expression:* `S + A - GOT : i64`
    OffsetFromGot64,
    /// The distance of a function from the table. `R_X86_64_PLTOFF64`. Every function can be reached, so no
    /// stub is needed.
    ///
    /// *Fixup expression:* `S + A - GOT : i64`
    BranchOffsetFromGot64,
    /// The distance to the descriptor of a thread-local variable. `R_X86_64_TLSGD`.
    ///
    /// *Fixup expression:* `D + A - P : i32`; where `D` is out of reach the `lea` becomes a `mov` of a
    /// pointer to `D`
    ///
    /// *Errors:* the symbol is not thread-local; the descriptor is out of reach and the instruction is not
    /// the `lea` of the psABI's sequence.
    TlsDescriptorDelta32,
    /// The distance to the descriptor of the graph's own thread-local image. `R_X86_64_TLSLD`.
    ///
    /// *Fixup expression:* `M + A - P : i32`
    ///
    /// *Errors:* the symbol is not thread-local, or belongs to a module that cannot be told.
    TlsModuleDelta32,
    /// The offset of a thread-local variable in its module. `R_X86_64_DTPOFF32`.
    ///
    /// *Fixup expression:* `O + A : i32`
    ///
    /// *Errors:* the symbol is not thread-local; it belongs to another module; the offset needs more bits.
    TlsOffset32,
    /// The offset of a thread-local variable in its module. `R_X86_64_DTPOFF64`.
    ///
    /// *Fixup expression:* `O + A : i64`
    ///
    /// *Errors:* the symbol is not thread-local, or belongs to another module.
    TlsOffset64,
    /// The distance of a thread-local variable from the thread pointer. `R_X86_64_TPOFF32`, the local-exec model.
    ///
    /// *Fixup expression:* `T + A : i32`
    ///
    /// *Errors:* the symbol is not thread-local; its distance is not the same on every thread.
    TlsDistance32,
    /// The distance of a thread-local variable from the thread pointer. `R_X86_64_TPOFF64`.
    ///
    /// *Fixup expression:* `T + A : i64`
    ///
    /// *Errors:* as [`EdgeKind::TlsDistance32`].
    TlsDistance64,
    /// The distance to a word that holds a variable's distance from the thread pointer, the initial-exec model.
    /// `R_X86_64_CODE_4_GOTTPOFF`, `R_X86_64_CODE_5_GOTTPOFF`, `R_X86_64_CODE_6_GOTTPOFF`.
    ///
    /// *Fixup expression:* `TG + A - P : i32`
    ///
    /// *Errors:* as [`EdgeKind::TlsDistance32`]; the table is more than 2 GiB away from the code.
    TlsDistanceEntryDelta32,
    /// As [`EdgeKind::TlsDistanceEntryDelta32`], of an instruction that the linker may rewrite. `R_X86_64_GOTTPOFF`.
    ///
    /// *Fixup expression:* `TG + A - P : i32`; where threads do not agree on `T`, the `mov` or `add` becomes a jump to
    /// code that finds it on each
    ///
    /// *Errors:* as [`EdgeKind::TlsDistanceEntryDelta32`], if it is another instruction.
    TlsDistanceEntryDelta32Relaxable,
    /// The distance to the pair of a resolver and its argument. `R_X86_64_GOTPC32_TLSDESC`,
    /// `R_X86_64_CODE_4_GOTPC32_TLSDESC` and so on. The call through the pair may be anywhere behind it, and stays as it is.
    ///
    /// *Fixup expression:* `R + A - P : i32`
    ///
    /// *Errors:* the symbol is not thread-local; the table is more than 2 GiB away from the code.
    TlsResolverDelta32,
    /// The size of the symbol. `R_X86_64_SIZE32`.
    ///
    /// *Fixup expression:* `Z + A : u32`
    ///
    /// *Errors:* the size needs more than 32 bits, or the symbol is defined elsewhere.
    Size32,
    /// The size of the symbol. `R_X86_64_SIZE64`.
    ///
    /// *Fixup expression:* `Z + A : u64`
    ///
    /// *Errors:* the symbol is defined elsewhere.
    Size64,
}

/// The form of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Sign-extended.
    Signed(u8),
    /// Zero-extended.
    Unsigned(u8),
    /// Either will do.
    Either(u8),
}

impl Field {
    /// Width in bytes.
    pub const fn bytes(self) -> usize {
        let (Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Either(bytes)) = self;
        bytes as usize
    }

    const fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_))
    }

    /// Whether `value` survives being stored and read back. A full-width field takes everything.
    pub const fn fits(self, value: i64) -> bool {
        let bits = self.bytes() as u32 * 8;
        if bits >= 64 {
            return true;
        }
        let signed = value >= -(1 << (bits - 1)) && value < 1 << (bits - 1);
        let unsigned = value >= 0 && value < 1 << bits;
        match self {
            Self::Signed(_) => signed,
            Self::Unsigned(_) => unsigned,
            Self::Either(_) => signed || unsigned,
        }
    }
}

/// The numbers an edge is computed from; the letters of the module's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// `P`.
    pub place: u64,
    /// `S`, `G`, `L`, `D`, `M`, `O` or `Z`: what the expression of the kind starts from.
    pub target: u64,
    /// `A`.
    pub addend: i64,
    /// `GOT`.
    pub got: u64,
}

/// A value that its field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The value.
    pub value: i64,
    /// Width of the field.
    pub bits: u8,
    /// Whether the field is sign-extended.
    pub signed: bool,
}

impl EdgeKind {
    /// The form of the field.
    pub const fn field(self) -> Field {
        match self {
            Self::Pointer64
            | Self::Delta64
            | Self::GotEntryDelta64
            | Self::GotEntryOffset64
            | Self::GotDelta64
            | Self::OffsetFromGot64
            | Self::BranchOffsetFromGot64
            | Self::TlsOffset64
            | Self::TlsDistance64 => Field::Signed(8),
            Self::Size64 => Field::Unsigned(8),
            Self::Pointer32 | Self::Size32 => Field::Unsigned(4),
            Self::Pointer32Signed
            | Self::Delta32
            | Self::NegativeDelta32
            | Self::Branch32
            | Self::GotEntryDelta32
            | Self::GotEntryDelta32Relaxable
            | Self::GotEntryOffset32
            | Self::GotDelta32
            | Self::TlsDescriptorDelta32
            | Self::TlsModuleDelta32
            | Self::TlsOffset32
            | Self::TlsDistance32
            | Self::TlsDistanceEntryDelta32
            | Self::TlsDistanceEntryDelta32Relaxable
            | Self::TlsResolverDelta32 => Field::Signed(4),
            Self::Pointer16 => Field::Either(2),
            Self::Delta16 => Field::Signed(2),
            Self::Pointer8 => Field::Either(1),
            Self::Delta8 => Field::Signed(1),
        }
    }

    /// Whether the kind is about thread-local variables.
    pub const fn is_thread_local(self) -> bool {
        matches!(
            self,
            Self::TlsDescriptorDelta32
                | Self::TlsModuleDelta32
                | Self::TlsOffset32
                | Self::TlsOffset64
                | Self::TlsDistance32
                | Self::TlsDistance64
                | Self::TlsDistanceEntryDelta32
                | Self::TlsDistanceEntryDelta32Relaxable
                | Self::TlsResolverDelta32
        )
    }

    /// Whether the target is used at all, beyond its name in a message.
    pub const fn ignores_target(self) -> bool {
        matches!(self, Self::GotDelta32 | Self::GotDelta64)
    }

    /// The value of the field.
    pub const fn value(self, operands: &Operands) -> i64 {
        let Operands { place, target, addend, got } = *operands;
        let base = match self {
            Self::Pointer64
            | Self::Pointer32
            | Self::Pointer32Signed
            | Self::Pointer16
            | Self::Pointer8
            | Self::TlsOffset32
            | Self::TlsOffset64
            | Self::TlsDistance32
            | Self::TlsDistance64
            | Self::Size32
            | Self::Size64 => target,
            Self::Delta64
            | Self::Delta32
            | Self::Delta16
            | Self::Delta8
            | Self::Branch32
            | Self::GotEntryDelta32
            | Self::GotEntryDelta32Relaxable
            | Self::GotEntryDelta64
            | Self::TlsDescriptorDelta32
            | Self::TlsModuleDelta32
            | Self::TlsDistanceEntryDelta32
            | Self::TlsDistanceEntryDelta32Relaxable
            | Self::TlsResolverDelta32 => target.wrapping_sub(place),
            Self::NegativeDelta32 => place.wrapping_sub(target),
            Self::GotDelta32 | Self::GotDelta64 => got.wrapping_sub(place),
            Self::GotEntryOffset32
            | Self::GotEntryOffset64
            | Self::OffsetFromGot64
            | Self::BranchOffsetFromGot64 => target.wrapping_sub(got),
        };
        base.cast_signed().wrapping_add(addend)
    }

    /// The relocation's name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pointer64 => "R_X86_64_64",
            Self::Pointer32 => "R_X86_64_32",
            Self::Pointer32Signed => "R_X86_64_32S",
            Self::Pointer16 => "R_X86_64_16",
            Self::Pointer8 => "R_X86_64_8",
            Self::Delta64 => "R_X86_64_PC64",
            Self::Delta32 => "R_X86_64_PC32",
            Self::Delta16 => "R_X86_64_PC16",
            Self::Delta8 => "R_X86_64_PC8",
            Self::NegativeDelta32 => "distance to a common information entry",
            Self::Branch32 => "R_X86_64_PLT32",
            Self::GotEntryDelta32 => "R_X86_64_GOTPCREL",
            Self::GotEntryDelta32Relaxable => "R_X86_64_GOTPCRELX",
            Self::GotEntryDelta64 => "R_X86_64_GOTPCREL64",
            Self::GotEntryOffset32 => "R_X86_64_GOT32",
            Self::GotEntryOffset64 => "R_X86_64_GOT64",
            Self::GotDelta32 => "R_X86_64_GOTPC32",
            Self::GotDelta64 => "R_X86_64_GOTPC64",
            Self::OffsetFromGot64 => "R_X86_64_GOTOFF64",
            Self::BranchOffsetFromGot64 => "R_X86_64_PLTOFF64",
            Self::TlsDescriptorDelta32 => "R_X86_64_TLSGD",
            Self::TlsModuleDelta32 => "R_X86_64_TLSLD",
            Self::TlsOffset32 => "R_X86_64_DTPOFF32",
            Self::TlsOffset64 => "R_X86_64_DTPOFF64",
            Self::TlsDistance32 => "R_X86_64_TPOFF32",
            Self::TlsDistance64 => "R_X86_64_TPOFF64",
            Self::TlsDistanceEntryDelta32 => "R_X86_64_CODE_4_GOTTPOFF",
            Self::TlsDistanceEntryDelta32Relaxable => "R_X86_64_GOTTPOFF",
            Self::TlsResolverDelta32 => "R_X86_64_GOTPC32_TLSDESC",
            Self::Size32 => "R_X86_64_SIZE32",
            Self::Size64 => "R_X86_64_SIZE64",
        }
    }
}

/// Computes the field of an edge and stores it at the start of `field`.
///
/// # Errors
/// [`Overflow`] if the value does not fit; nothing is written then.
///
/// # Panics
/// If `field` is shorter than the kind's field; the parser has checked that.
pub fn apply(field: &mut [u8], kind: EdgeKind, operands: &Operands) -> Result<(), Overflow> {
    let value = kind.value(operands);
    let form = kind.field();
    let bytes = form.bytes();
    if !form.fits(value) {
        return Err(Overflow { value, bits: bytes as u8 * 8, signed: form.is_signed() });
    }
    field[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(kind: EdgeKind, target: u64, addend: i64) -> Result<[u8; 8], Overflow> {
        let mut field = [0xcc; 8];
        let operands = Operands { place: 0x7000_0000_1000, target, addend, got: 0x7000_0000_2000 };
        apply(&mut field, kind, &operands).map(|()| field)
    }

    #[test]
    fn a_field_takes_the_ends_of_its_range_and_not_one_more() {
        let (base, got) = (0x7000_0000_1000_u64, 0x7000_0000_2000_u64);
        let cases = [
            (EdgeKind::Pointer32, 0xffff_ffff, 0x1_0000_0000),
            (EdgeKind::Pointer32Signed, 0x7fff_ffff, 0x8000_0000),
            (EdgeKind::Pointer16, 0xffff, 0x1_0000),
            (EdgeKind::Pointer8, 0xff, 0x100),
            (EdgeKind::Delta32, base + 0x7fff_ffff, base + 0x8000_0000),
            (EdgeKind::Delta16, base + 0x7fff, base + 0x8000),
            (EdgeKind::Delta8, base + 0x7f, base + 0x80),
            (EdgeKind::Branch32, base - 0x8000_0000, base - 0x8000_0001),
            (EdgeKind::NegativeDelta32, base + 0x8000_0000, base + 0x8000_0001),
            (EdgeKind::GotEntryDelta32, base + 0x7fff_ffff, base + 0x8000_0000),
            (EdgeKind::GotEntryDelta32, base - 0x8000_0000, base - 0x8000_0001),
            (EdgeKind::GotEntryDelta32Relaxable, base + 0x7fff_ffff, base + 0x8000_0000),
            (EdgeKind::GotEntryOffset32, got + 0x7fff_ffff, got + 0x8000_0000),
            (EdgeKind::TlsDescriptorDelta32, base + 0x7fff_ffff, base + 0x8000_0000),
            (EdgeKind::TlsDescriptorDelta32, base - 0x8000_0000, base - 0x8000_0001),
            (EdgeKind::TlsModuleDelta32, base + 0x7fff_ffff, base + 0x8000_0000),
            (EdgeKind::TlsModuleDelta32, base - 0x8000_0000, base - 0x8000_0001),
            (EdgeKind::TlsOffset32, 0x7fff_ffff, 0x8000_0000),
            (EdgeKind::TlsDistance32, 0x7fff_ffff, 0x8000_0000),
            (EdgeKind::Size32, 0xffff_ffff, 0x1_0000_0000),
        ];
        for (kind, inside, outside) in cases {
            assert!(store(kind, inside, 0).is_ok(), "{kind:?} {inside:#x}");
            let overflow = store(kind, outside, 0).expect_err(kind.name());
            assert_eq!(usize::from(overflow.bits), kind.field().bytes() * 8, "{kind:?}");
        }
    }

    /// The distance to the table depends on no target, so the addend goes to the ends here.
    #[test]
    fn the_distance_to_the_table_ends_with_its_field() {
        let distance = 0x1000;
        assert!(store(EdgeKind::GotDelta32, 0, 0x7fff_ffff - distance).is_ok());
        assert!(store(EdgeKind::GotDelta32, 0, -0x8000_0000 - distance).is_ok());
        for addend in [0x8000_0000 - distance, -0x8000_0001 - distance] {
            let overflow = store(EdgeKind::GotDelta32, 0, addend).expect_err("out of range");
            assert_eq!((overflow.value, overflow.bits, overflow.signed), (addend + distance, 32, true));
        }
    }

    #[test]
    fn neighbours_of_the_field_stay_as_they_are() {
        assert_eq!(
            store(EdgeKind::Delta16, 0x7000_0000_1002, 0),
            Ok([2, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc])
        );
        assert_eq!(store(EdgeKind::Pointer8, 5, -6), Ok([0xff, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc]));
    }

    #[test]
    fn table_relative_values_are_distances_from_the_table() {
        assert_eq!(store(EdgeKind::OffsetFromGot64, 0x7000_0000_1ff8, 0), Ok((-8_i64).to_le_bytes()));
        assert_eq!(store(EdgeKind::GotDelta64, 0, 3), Ok(0x1003_i64.to_le_bytes()));
        assert_eq!(store(EdgeKind::GotEntryOffset64, 0x7000_0000_2010, 0), Ok(0x10_i64.to_le_bytes()));
    }
}
