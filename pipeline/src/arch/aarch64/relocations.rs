//! The meanings of the numbers of relocation types.

use object::elf;

use super::{Meaning, kinds};

pub(in crate::arch) fn meaning(kind: elf::RelocationType) -> Meaning {
    /// Another number for no relocation, of old assemblers.
    const NONE_BEFORE: elf::RelocationType = elf::RelocationType(256);
    Meaning::Edge(match kind {
        elf::R_AARCH64_NONE | NONE_BEFORE => return Meaning::Nothing,
        // The call goes through the pair that its register points to; there is nothing to compute.
        elf::R_AARCH64_TLSDESC_CALL => return Meaning::Nothing,
        elf::R_AARCH64_ABS64 => kinds::POINTER_64,
        elf::R_AARCH64_ABS32 => kinds::POINTER_32,
        elf::R_AARCH64_ABS16 => kinds::POINTER_16,
        elf::R_AARCH64_PREL64 => kinds::DELTA_64,
        elf::R_AARCH64_PREL32 => kinds::DELTA_32,
        elf::R_AARCH64_PREL16 => kinds::DELTA_16,
        elf::R_AARCH64_CALL26 => kinds::BRANCH_26,
        elf::R_AARCH64_JUMP26 => kinds::JUMP_26,
        elf::R_AARCH64_CONDBR19 => kinds::BRANCH_19,
        elf::R_AARCH64_TSTBR14 => kinds::BRANCH_14,
        elf::R_AARCH64_PLT32 => kinds::BRANCH_DELTA_32,
        elf::R_AARCH64_LD_PREL_LO19 => kinds::LOAD_DELTA_19,
        elf::R_AARCH64_ADR_PREL_LO21 => kinds::DELTA_21,
        elf::R_AARCH64_ADR_PREL_PG_HI21 => kinds::PAGE_21,
        elf::R_AARCH64_ADR_PREL_PG_HI21_NC => kinds::PAGE_21_PART,
        elf::R_AARCH64_ADD_ABS_LO12_NC => kinds::LOW_12,
        elf::R_AARCH64_LDST8_ABS_LO12_NC => kinds::ACCESS_8_LOW_12,
        elf::R_AARCH64_LDST16_ABS_LO12_NC => kinds::ACCESS_16_LOW_12,
        elf::R_AARCH64_LDST32_ABS_LO12_NC => kinds::ACCESS_32_LOW_12,
        elf::R_AARCH64_LDST64_ABS_LO12_NC => kinds::ACCESS_64_LOW_12,
        elf::R_AARCH64_LDST128_ABS_LO12_NC => kinds::ACCESS_128_LOW_12,
        elf::R_AARCH64_MOVW_UABS_G0 => kinds::GROUP_0,
        elf::R_AARCH64_MOVW_UABS_G0_NC => kinds::GROUP_0_PART,
        elf::R_AARCH64_MOVW_UABS_G1 => kinds::GROUP_1,
        elf::R_AARCH64_MOVW_UABS_G1_NC => kinds::GROUP_1_PART,
        elf::R_AARCH64_MOVW_UABS_G2 => kinds::GROUP_2,
        elf::R_AARCH64_MOVW_UABS_G2_NC => kinds::GROUP_2_PART,
        elf::R_AARCH64_MOVW_UABS_G3 => kinds::GROUP_3,
        elf::R_AARCH64_ADR_GOT_PAGE => kinds::GOT_PAGE_21,
        elf::R_AARCH64_LD64_GOT_LO12_NC => kinds::GOT_LOW_12,
        elf::R_AARCH64_LD64_GOTPAGE_LO15 => kinds::GOT_ENTRY_FROM_PAGE_15,
        elf::R_AARCH64_GOTPCREL32 => kinds::GOT_ENTRY_DELTA_32,
        elf::R_AARCH64_TLSDESC_ADR_PAGE21 => kinds::TLS_RESOLVER_PAGE_21,
        elf::R_AARCH64_TLSDESC_LD64_LO12 => kinds::TLS_RESOLVER_LOAD_LOW_12,
        elf::R_AARCH64_TLSDESC_ADD_LO12 => kinds::TLS_RESOLVER_LOW_12,
        elf::R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21 => kinds::TLS_DISTANCE_ENTRY_PAGE_21,
        elf::R_AARCH64_TLSIE_LD64_GOTTPREL_LO12_NC => kinds::TLS_DISTANCE_ENTRY_LOW_12,
        elf::R_AARCH64_TLSLE_ADD_TPREL_HI12 => kinds::TLS_DISTANCE_HIGH_12,
        elf::R_AARCH64_TLSLE_ADD_TPREL_LO12 => kinds::TLS_DISTANCE_LOW_12,
        elf::R_AARCH64_TLSLE_ADD_TPREL_LO12_NC => kinds::TLS_DISTANCE_LOW_12_PART,
        elf::R_AARCH64_TLSLE_LDST8_TPREL_LO12_NC => kinds::TLS_ACCESS_8_LOW_12,
        elf::R_AARCH64_TLSLE_LDST16_TPREL_LO12_NC => kinds::TLS_ACCESS_16_LOW_12,
        elf::R_AARCH64_TLSLE_LDST32_TPREL_LO12_NC => kinds::TLS_ACCESS_32_LOW_12,
        elf::R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC => kinds::TLS_ACCESS_64_LOW_12,
        elf::R_AARCH64_TLSLE_LDST128_TPREL_LO12_NC => kinds::TLS_ACCESS_128_LOW_12,
        _ => return Meaning::Unsupported,
    })
}

/// Addresses, offsets in other sections, and offsets of thread-local variables.
pub(in crate::arch) const fn debug_field_bytes(number: elf::RelocationType) -> Option<usize> {
    match number {
        elf::R_AARCH64_ABS64 | elf::R_AARCH64_TLS_DTPREL => Some(8),
        elf::R_AARCH64_ABS32 => Some(4),
        _ => None,
    }
}

pub(in crate::arch) fn foreign_name(kind: elf::RelocationType) -> Box<str> {
    let name = match kind {
        elf::R_AARCH64_COPY => "R_AARCH64_COPY",
        elf::R_AARCH64_GLOB_DAT => "R_AARCH64_GLOB_DAT",
        elf::R_AARCH64_JUMP_SLOT => "R_AARCH64_JUMP_SLOT",
        elf::R_AARCH64_RELATIVE => "R_AARCH64_RELATIVE",
        elf::R_AARCH64_IRELATIVE => "R_AARCH64_IRELATIVE",
        elf::RelocationType(number) => return format!("number {number}").into(),
    };
    name.into()
}
