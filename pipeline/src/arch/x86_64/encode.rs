//! The fields of edges: where the expression of each starts, and how its value is stored.

use super::kinds::{self, row};
use super::{EdgeKind, Operands, Overflow};

/// From which numbers a kind's value is computed. The addend is added to that.
#[derive(Clone, Copy)]
pub(super) enum ValueStart {
    /// `S`.
    Target,
    /// `S - P`.
    Distance,
    /// `P - S`.
    DistanceBack,
    /// `GOT - P`.
    TableDistance,
    /// `S - GOT`.
    FromTable,
}

impl ValueStart {
    fn value(self, operands: &Operands) -> i64 {
        let Operands { place, target, addend, got } = *operands;
        let start = match self {
            Self::Target => target,
            Self::Distance => target.wrapping_sub(place),
            Self::DistanceBack => place.wrapping_sub(target),
            Self::TableDistance => got.wrapping_sub(place),
            Self::FromTable => target.wrapping_sub(got),
        };
        start.cast_signed().wrapping_add(addend)
    }
}

/// The form of a field, with its width in bytes.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// Sign-extended.
    Signed(u8),
    /// Zero-extended.
    Unsigned(u8),
    /// Either will do.
    Either(u8),
}

impl Field {
    const fn bytes(self) -> usize {
        let (Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Either(bytes)) = self;
        bytes as usize
    }

    const fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_))
    }

    /// Whether `value` survives being stored and read back. A full-width field takes everything.
    const fn fits(self, value: i64) -> bool {
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

pub(in crate::arch) fn field_bytes(kind: EdgeKind) -> usize {
    row(kind).field.bytes()
}

/// # Panics
/// If `field` is shorter than the kind's field; the parser has checked that.
#[inline]
pub(in crate::arch) fn encode(kind: EdgeKind, operands: &Operands, field: &mut [u8]) -> Result<(), Overflow> {
    let row = row(kind);
    let value = row.start.value(operands);
    let bytes = row.field.bytes();
    if !row.field.fits(value) {
        return Err(Overflow { value, bits: bytes as u8 * 8, signed: row.field.is_signed(), unit: 1 });
    }
    field[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    Ok(())
}

pub(in crate::arch) fn value(kind: EdgeKind, operands: &Operands) -> i64 {
    row(kind).start.value(operands)
}

/// A displacement counts from the end of its field, behind which the instruction ends that calls, or takes an address.
pub(in crate::arch) fn points_into(kind: EdgeKind, addend: i64, is_code: bool) -> Option<i64> {
    match kind {
        kinds::BRANCH_32 => Some(addend + 4),
        kinds::DELTA_32 if is_code => Some(addend + 4),
        kinds::DELTA_32
        | kinds::DELTA_64
        | kinds::POINTER_64
        | kinds::POINTER_32
        | kinds::POINTER_32_SIGNED
        | kinds::OFFSET_FROM_GOT_64 => Some(addend),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(kind: EdgeKind, target: u64, addend: i64) -> Result<[u8; 8], Overflow> {
        let mut field = [0xcc; 8];
        let operands = Operands { place: 0x7000_0000_1000, target, addend, got: 0x7000_0000_2000 };
        encode(kind, &operands, &mut field).map(|()| field)
    }

    #[test]
    fn a_field_takes_the_ends_of_its_range_and_not_one_more() {
        let (base, got) = (0x7000_0000_1000_u64, 0x7000_0000_2000_u64);
        let cases = [
            (kinds::POINTER_32, 0xffff_ffff, 0x1_0000_0000),
            (kinds::POINTER_32_SIGNED, 0x7fff_ffff, 0x8000_0000),
            (kinds::POINTER_16, 0xffff, 0x1_0000),
            (kinds::POINTER_8, 0xff, 0x100),
            (kinds::DELTA_32, base + 0x7fff_ffff, base + 0x8000_0000),
            (kinds::DELTA_16, base + 0x7fff, base + 0x8000),
            (kinds::DELTA_8, base + 0x7f, base + 0x80),
            (kinds::BRANCH_32, base - 0x8000_0000, base - 0x8000_0001),
            (kinds::NEGATIVE_DELTA_32, base + 0x8000_0000, base + 0x8000_0001),
            (kinds::GOT_ENTRY_DELTA_32, base + 0x7fff_ffff, base + 0x8000_0000),
            (kinds::GOT_ENTRY_DELTA_32, base - 0x8000_0000, base - 0x8000_0001),
            (kinds::GOT_ENTRY_DELTA_32_RELAXABLE, base + 0x7fff_ffff, base + 0x8000_0000),
            (kinds::GOT_ENTRY_OFFSET_32, got + 0x7fff_ffff, got + 0x8000_0000),
            (kinds::TLS_DESCRIPTOR_DELTA_32, base + 0x7fff_ffff, base + 0x8000_0000),
            (kinds::TLS_DESCRIPTOR_DELTA_32, base - 0x8000_0000, base - 0x8000_0001),
            (kinds::TLS_MODULE_DELTA_32, base + 0x7fff_ffff, base + 0x8000_0000),
            (kinds::TLS_MODULE_DELTA_32, base - 0x8000_0000, base - 0x8000_0001),
            (kinds::TLS_OFFSET_32, 0x7fff_ffff, 0x8000_0000),
            (kinds::TLS_DISTANCE_32, 0x7fff_ffff, 0x8000_0000),
            (kinds::SIZE_32, 0xffff_ffff, 0x1_0000_0000),
        ];
        for (kind, inside, outside) in cases {
            assert!(store(kind, inside, 0).is_ok(), "{kind:?} {inside:#x}");
            let overflow = store(kind, outside, 0).expect_err(kinds::kind_name(kind));
            assert_eq!(usize::from(overflow.bits), field_bytes(kind) * 8, "{kind:?}");
        }
    }

    /// The distance to the table depends on no target, so the addend goes to the ends here.
    #[test]
    fn the_distance_to_the_table_ends_with_its_field() {
        let distance = 0x1000;
        assert!(store(kinds::GOT_DELTA_32, 0, 0x7fff_ffff - distance).is_ok());
        assert!(store(kinds::GOT_DELTA_32, 0, -0x8000_0000 - distance).is_ok());
        for addend in [0x8000_0000 - distance, -0x8000_0001 - distance] {
            let overflow = store(kinds::GOT_DELTA_32, 0, addend).expect_err("out of range");
            assert_eq!((overflow.value, overflow.bits, overflow.signed), (addend + distance, 32, true));
        }
    }

    #[test]
    fn neighbours_of_the_field_stay_as_they_are() {
        assert_eq!(
            store(kinds::DELTA_16, 0x7000_0000_1002, 0),
            Ok([2, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc])
        );
        assert_eq!(store(kinds::POINTER_8, 5, -6), Ok([0xff, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc]));
    }

    #[test]
    fn table_relative_values_are_distances_from_the_table() {
        assert_eq!(store(kinds::OFFSET_FROM_GOT_64, 0x7000_0000_1ff8, 0), Ok((-8_i64).to_le_bytes()));
        assert_eq!(store(kinds::GOT_DELTA_64, 0, 3), Ok(0x1003_i64.to_le_bytes()));
        assert_eq!(store(kinds::GOT_ENTRY_OFFSET_64, 0x7000_0000_2010, 0), Ok(0x10_i64.to_le_bytes()));
    }
}
