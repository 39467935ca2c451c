//! The meanings of the numbers of relocation types.

use object::elf;

use super::{Meaning, kinds};

pub(in crate::arch) fn meaning(kind: elf::RelocationType) -> Meaning {
    /// Deprecated forms of PC32 and PLT32 with the `bnd` prefix, which the reader's tables no longer name.
    const PC32_BND: elf::RelocationType = elf::RelocationType(39);
    const PLT32_BND: elf::RelocationType = elf::RelocationType(40);
    Meaning::Edge(match kind {
        elf::R_X86_64_NONE => return Meaning::Nothing,
        elf::R_X86_64_64 => kinds::POINTER_64,
        elf::R_X86_64_32 => kinds::POINTER_32,
        elf::R_X86_64_32S => kinds::POINTER_32_SIGNED,
        elf::R_X86_64_16 => kinds::POINTER_16,
        elf::R_X86_64_8 => kinds::POINTER_8,
        elf::R_X86_64_PC64 => kinds::DELTA_64,
        elf::R_X86_64_PC32 | PC32_BND => kinds::DELTA_32,
        elf::R_X86_64_PC16 => kinds::DELTA_16,
        elf::R_X86_64_PC8 => kinds::DELTA_8,
        elf::R_X86_64_PLT32 | PLT32_BND => kinds::BRANCH_32,
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_CODE_5_GOTPCRELX | elf::R_X86_64_CODE_6_GOTPCRELX => {
            kinds::GOT_ENTRY_DELTA_32
        }
        elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX | elf::R_X86_64_CODE_4_GOTPCRELX => {
            kinds::GOT_ENTRY_DELTA_32_RELAXABLE
        }
        elf::R_X86_64_GOTPCREL64 => kinds::GOT_ENTRY_DELTA_64,
        elf::R_X86_64_GOT32 => kinds::GOT_ENTRY_OFFSET_32,
        elf::R_X86_64_GOT64 | elf::R_X86_64_GOTPLT64 => kinds::GOT_ENTRY_OFFSET_64,
        elf::R_X86_64_GOTPC32 => kinds::GOT_DELTA_32,
        elf::R_X86_64_GOTPC64 => kinds::GOT_DELTA_64,
        elf::R_X86_64_GOTOFF64 => kinds::OFFSET_FROM_GOT_64,
        elf::R_X86_64_PLTOFF64 => kinds::BRANCH_OFFSET_FROM_GOT_64,
        elf::R_X86_64_TLSGD => kinds::TLS_DESCRIPTOR_DELTA_32,
        elf::R_X86_64_TLSLD => kinds::TLS_MODULE_DELTA_32,
        elf::R_X86_64_DTPOFF32 => kinds::TLS_OFFSET_32,
        elf::R_X86_64_DTPOFF64 => kinds::TLS_OFFSET_64,
        elf::R_X86_64_SIZE32 => kinds::SIZE_32,
        elf::R_X86_64_SIZE64 => kinds::SIZE_64,
        elf::R_X86_64_TPOFF32 => kinds::TLS_DISTANCE_32,
        elf::R_X86_64_TPOFF64 => kinds::TLS_DISTANCE_64,
        elf::R_X86_64_GOTTPOFF => kinds::TLS_DISTANCE_ENTRY_DELTA_32_RELAXABLE,
        elf::R_X86_64_CODE_4_GOTTPOFF | elf::R_X86_64_CODE_5_GOTTPOFF | elf::R_X86_64_CODE_6_GOTTPOFF => {
            kinds::TLS_DISTANCE_ENTRY_DELTA_32
        }
        elf::R_X86_64_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_4_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_5_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_6_GOTPC32_TLSDESC => kinds::TLS_RESOLVER_DELTA_32,
        // The call goes through the pair that its register points to; there is nothing to compute.
        elf::R_X86_64_TLSDESC_CALL => return Meaning::Nothing,
        _ => return Meaning::Unsupported,
    })
}

/// Addresses, offsets in other sections, and offsets of thread-local variables.
pub(in crate::arch) const fn debug_field_bytes(number: elf::RelocationType) -> Option<usize> {
    match number {
        elf::R_X86_64_64 | elf::R_X86_64_DTPOFF64 => Some(8),
        elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_DTPOFF32 => Some(4),
        _ => None,
    }
}

pub(in crate::arch) fn foreign_name(kind: elf::RelocationType) -> Box<str> {
    let name = match kind {
        elf::R_X86_64_COPY => "R_X86_64_COPY",
        elf::R_X86_64_GLOB_DAT => "R_X86_64_GLOB_DAT",
        elf::R_X86_64_JUMP_SLOT => "R_X86_64_JUMP_SLOT",
        elf::R_X86_64_RELATIVE => "R_X86_64_RELATIVE",
        elf::R_X86_64_IRELATIVE => "R_X86_64_IRELATIVE",
        elf::R_X86_64_DTPMOD64 => "R_X86_64_DTPMOD64",
        elf::RelocationType(number) => return format!("number {number}").into(),
    };
    name.into()
}
