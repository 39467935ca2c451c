//! The fields of edges: where the expression of each starts, and how its value is stored.

use super::kinds::{self, row};
use super::{EdgeKind, Operands, Overflow};

/// The distance between two pages, as `adrp` counts it.
const PAGE_LOG2: u8 = 12;

/// From which numbers a kind's value is computed. `Page` clears the lowest twelve bits.
#[derive(Clone, Copy)]
pub(super) enum StartOfValue {
    /// `S + A`.
    Target,
    /// `S + A - P`.
    Distance,
    /// `P - S + A`.
    DistanceBack,
    /// `Page(S + A) - Page(P)`.
    PageDistance,
    /// `S + A - Page(GOT)`.
    FromTablePage,
}

impl StartOfValue {
    fn value(self, operands: &Operands) -> i64 {
        let Operands { place, target, addend, got } = *operands;
        let sum = target.wrapping_add_signed(addend);
        let value = match self {
            Self::Target => sum,
            Self::Distance => sum.wrapping_sub(place),
            Self::DistanceBack => place.wrapping_sub(target).wrapping_add_signed(addend),
            Self::PageDistance => page(sum).wrapping_sub(page(place)),
            Self::FromTablePage => sum.wrapping_sub(page(got)),
        };
        value.cast_signed()
    }
}

const fn page(address: u64) -> u64 {
    address & !((1 << PAGE_LOG2) - 1)
}

/// The numbers that a field takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// Those of a sign-extended field.
    Signed,
    /// Those of a zero-extended one.
    Unsigned,
    /// Either will do.
    Either,
    /// All: the field has a part of the value.
    Part,
}

/// Where in an instruction a value is stored.
#[derive(Clone, Copy)]
enum FieldPlace {
    /// In bytes of its own: data.
    Bytes,
    /// From this bit on.
    Bits(u8),
    /// Two bits from bit 29 on, the others from bit 5 on, as in `adr`.
    Split,
}

/// The form of a field.
#[derive(Clone, Copy)]
pub(super) struct Form {
    room: FieldPlace,
    /// How many bits are stored.
    width: u8,
    /// How many lower bits of the value are not.
    shift: u8,
    limits: Limits,
    /// The value is a multiple of it.
    unit: u8,
}

impl Form {
    /// Data of so many bytes.
    pub(super) const fn data(bytes: u8, limits: Limits) -> Self {
        Self { room: FieldPlace::Bytes, width: bytes * 8, shift: 0, limits, unit: 1 }
    }

    /// The distance of a branch, or of a load of a constant, in instructions.
    pub(super) const fn words(at: u8, width: u8) -> Self {
        Self { room: FieldPlace::Bits(at), width, shift: 2, limits: Limits::Signed, unit: 4 }
    }

    /// A distance in bytes: `adr`.
    pub(super) const fn adr() -> Self {
        Self { room: FieldPlace::Split, width: 21, shift: 0, limits: Limits::Signed, unit: 1 }
    }

    /// A distance in pages: `adrp`.
    pub(super) const fn adrp(limits: Limits) -> Self {
        Self { room: FieldPlace::Split, width: 21, shift: PAGE_LOG2, limits, unit: 1 }
    }

    /// Twelve bits of the value, of which the lowest `shift` are not stored.
    pub(super) const fn low_12(shift: u8, limits: Limits) -> Self {
        Self { room: FieldPlace::Bits(10), width: PAGE_LOG2 - shift, shift, limits, unit: 1 << shift }
    }

    /// Twelve bits of the value, behind the twelve lowest.
    pub(super) const fn high_12() -> Self {
        let shift = PAGE_LOG2;
        Self { room: FieldPlace::Bits(10), width: 12, shift, limits: Limits::Unsigned, unit: 1 }
    }

    /// An offset in words of eight bytes from the page of the global offset table.
    pub(super) const fn table_word() -> Self {
        Self { room: FieldPlace::Bits(10), width: 12, shift: 3, limits: Limits::Unsigned, unit: 8 }
    }

    /// Sixteen bits of the value: part `group` of `movz` and `movk`.
    pub(super) const fn group_16(group: u8, limits: Limits) -> Self {
        Self { room: FieldPlace::Bits(5), width: 16, shift: 16 * group, limits, unit: 1 }
    }

    /// How many bits of a value there are, stored or not.
    const fn bits(self) -> u8 {
        self.width + self.shift
    }

    const fn fits(self, value: i64) -> bool {
        let bits = self.bits();
        if bits >= 64 {
            return true;
        }
        let signed = value >= -(1 << (bits - 1)) && value < 1 << (bits - 1);
        let unsigned = value >= 0 && value < 1 << bits;
        match self.limits {
            Limits::Signed => signed,
            Limits::Unsigned => unsigned,
            Limits::Either => signed || unsigned,
            Limits::Part => true,
        }
    }

    fn store(self, value: i64, field: &mut [u8]) {
        let mask = |width: u8| (1_u64 << width) - 1;
        let shifted = value.cast_unsigned() >> self.shift;
        let (bits, cleared) = match self.room {
            FieldPlace::Bytes => {
                let bytes = self.bytes();
                return field[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            }
            FieldPlace::Bits(at) => ((shifted & mask(self.width)) << at, mask(self.width) << at),
            FieldPlace::Split => {
                let upper = (shifted >> 2 & mask(self.width - 2)) << 5;
                ((shifted & 3) << 29 | upper, 3 << 29 | mask(self.width - 2) << 5)
            }
        };
        let Some(word) = field.first_chunk_mut() else { return };
        // Both have 32 bits.
        *word = (u32::from_le_bytes(*word) & !(cleared as u32) | bits as u32).to_le_bytes();
    }

    const fn bytes(self) -> usize {
        match self.room {
            FieldPlace::Bytes => self.width as usize / 8,
            FieldPlace::Bits(_) | FieldPlace::Split => 4,
        }
    }
}

pub(in crate::arch) fn field_bytes(kind: EdgeKind) -> usize {
    row(kind).form.bytes()
}

/// # Panics
/// If `field` is shorter than the kind's field; the parser has checked that.
#[inline]
pub(in crate::arch) fn encode(kind: EdgeKind, operands: &Operands, field: &mut [u8]) -> Result<(), Overflow> {
    let form = row(kind).form;
    let value = row(kind).start.value(operands);
    let unit = i64::from(form.unit);
    if !form.fits(value) || value % unit != 0 {
        let signed = form.limits == Limits::Signed;
        return Err(Overflow { value, bits: form.bits(), signed, unit: form.unit });
    }
    form.store(value, field);
    Ok(())
}

pub(in crate::arch) fn value(kind: EdgeKind, operands: &Operands) -> i64 {
    row(kind).start.value(operands)
}

/// Distances count from the field, which is the instruction: the addend is all there is.
pub(in crate::arch) fn points_into(kind: EdgeKind, addend: i64, _is_code: bool) -> Option<i64> {
    kinds::is_place(kind).then_some(addend)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 0x7000_0000_1000;

    fn store(kind: EdgeKind, target: u64, addend: i64) -> Result<u64, Overflow> {
        let mut field = [0; 8];
        let operands = Operands { place: PLACE, target, addend, got: 0x7000_0000_2010 };
        encode(kind, &operands, &mut field).map(|()| u64::from_le_bytes(field))
    }

    /// The kind, the last value on either side that fits, and how far the first that does not is from it.
    #[test]
    fn a_field_takes_the_ends_of_its_range_and_not_one_more() {
        let cases = [
            (kinds::POINTER_32, 0xffff_ffff, -0x8000_0000_i64, 1),
            (kinds::POINTER_16, 0xffff, -0x8000, 1),
            (kinds::BRANCH_26, 0x7ff_fffc, -0x800_0000, 4),
            (kinds::JUMP_26, 0x7ff_fffc, -0x800_0000, 4),
            (kinds::BRANCH_19, 0xf_fffc, -0x10_0000, 4),
            (kinds::BRANCH_14, 0x7ffc, -0x8000, 4),
            (kinds::BRANCH_DELTA_32, 0x7fff_ffff, -0x8000_0000, 1),
            (kinds::LOAD_DELTA_19, 0xf_fffc, -0x10_0000, 4),
            (kinds::DELTA_21, 0xf_ffff, -0x10_0000, 1),
            (kinds::PAGE_21, 0xffff_ffff, -0x1_0000_0000, 1),
            (kinds::GOT_PAGE_21, 0xffff_ffff, -0x1_0000_0000, 1),
            (kinds::TLS_RESOLVER_PAGE_21, 0xffff_ffff, -0x1_0000_0000, 1),
            (kinds::TLS_DISTANCE_ENTRY_PAGE_21, 0xffff_ffff, -0x1_0000_0000, 1),
            (kinds::DELTA_32, 0xffff_ffff, -0x8000_0000, 1),
            (kinds::DELTA_16, 0xffff, -0x8000, 1),
            (kinds::GROUP_0, 0xffff, 0, 1),
            (kinds::GROUP_1, 0xffff_ffff, 0, 1),
            (kinds::GROUP_2, 0xffff_ffff_ffff, 0, 1),
            (kinds::TLS_DISTANCE_HIGH_12, 0xff_ffff, 0, 1),
            (kinds::TLS_DISTANCE_LOW_12, 0xfff, 0, 1),
        ];
        for (kind, last, first, step) in cases {
            let is_distance =
                value(kind, &Operands { place: PLACE, target: PLACE, ..Operands::default() }) == 0;
            let from = if is_distance { PLACE } else { 0 };
            for (inside, outside) in [(last, last + step), (first, first - step)] {
                let name = kinds::kind_name(kind);
                assert!(store(kind, from.wrapping_add_signed(inside), 0).is_ok(), "{name} {inside:#x}");
                let overflow = store(kind, from.wrapping_add_signed(outside), 0).expect_err(name);
                assert_eq!(overflow.bits, row(kind).form.bits(), "{name}");
            }
        }
    }

    #[test]
    fn an_access_of_several_bytes_is_aligned_to_them() {
        let cases = [
            (kinds::ACCESS_16_LOW_12, 2),
            (kinds::ACCESS_32_LOW_12, 4),
            (kinds::ACCESS_64_LOW_12, 8),
            (kinds::ACCESS_128_LOW_12, 16),
        ];
        for (kind, unit) in cases {
            assert_eq!(store(kind, 0x12_3ff0, 0), Ok((0xff0 / unit) << 10), "{unit}");
            let overflow = store(kind, 0x12_3ff0 + unit / 2, 0).expect_err("not aligned");
            assert_eq!(
                (u64::from(overflow.unit), overflow.value),
                (unit, 0x12_3ff0 + unit.cast_signed() / 2)
            );
        }
        assert_eq!(store(kinds::ACCESS_8_LOW_12, 0x12_3fff, 0), Ok(0xfff << 10));
        assert!(store(kinds::BRANCH_26, PLACE + 2, 0).is_err());
    }

    #[test]
    fn pages_are_those_of_the_sum_and_of_the_place() {
        assert_eq!(store(kinds::PAGE_21, PLACE + 0xfff, 1), Ok(1 << 29), "the addend leads to the next page");
        assert_eq!(store(kinds::PAGE_21, PLACE - 1, 0), Ok(0x60ff_ffe0), "one page back");
        let offset = store(kinds::GOT_ENTRY_FROM_PAGE_15, 0x7000_0000_2018, 0);
        assert_eq!(offset, Ok(3 << 10), "from the page of the table, and not from the table");
        assert!(store(kinds::GOT_ENTRY_FROM_PAGE_15, 0x7000_0000_a000, 0).is_err());
    }

    #[test]
    fn the_instruction_around_a_field_stays() {
        for (kind, instruction, wanted) in [
            (kinds::BRANCH_26, 0x9400_0000_u32, 0x9400_0004),
            (kinds::BRANCH_14, 0x3608_0005, 0x3608_0085),
            (kinds::DELTA_21, 0x1000_0003, 0x1000_0083),
            (kinds::LOW_12, 0x9100_0021, 0x9100_4021),
        ] {
            let mut field = instruction.to_le_bytes();
            let operands = Operands { place: PLACE, target: PLACE + 16, ..Operands::default() };
            encode(kind, &operands, &mut field).expect("it fits");
            assert_eq!(u32::from_le_bytes(field), wanted, "{}", kinds::kind_name(kind));
        }
    }
}
