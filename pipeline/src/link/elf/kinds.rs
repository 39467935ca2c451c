//! What the numbers of relocation types mean.

use object::elf;

use crate::link::x86_64::EdgeKind;

/// What a relocation type of the object means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Edge(EdgeKind),
    /// `R_X86_64_NONE`, and marks for linkers that rewrite the instruction.
    Nothing,
    /// Belongs into linked files, or is unknown.
    Unsupported,
}

pub(super) fn meaning(kind: elf::RelocationType) -> Meaning {
    use EdgeKind as E;
    /// Deprecated forms of PC32 and PLT32 with the `bnd` prefix, which the reader's tables no longer name.
    const PC32_BND: elf::RelocationType = elf::RelocationType(39);
    const PLT32_BND: elf::RelocationType = elf::RelocationType(40);
    Meaning::Edge(match kind {
        elf::R_X86_64_NONE => return Meaning::Nothing,
        elf::R_X86_64_64 => E::Pointer64,
        elf::R_X86_64_32 => E::Pointer32,
        elf::R_X86_64_32S => E::Pointer32Signed,
        elf::R_X86_64_16 => E::Pointer16,
        elf::R_X86_64_8 => E::Pointer8,
        elf::R_X86_64_PC64 => E::Delta64,
        elf::R_X86_64_PC32 | PC32_BND => E::Delta32,
        elf::R_X86_64_PC16 => E::Delta16,
        elf::R_X86_64_PC8 => E::Delta8,
        elf::R_X86_64_PLT32 | PLT32_BND => E::Branch32,
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_CODE_5_GOTPCRELX | elf::R_X86_64_CODE_6_GOTPCRELX => {
            E::GotEntryDelta32
        }
        elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX | elf::R_X86_64_CODE_4_GOTPCRELX => {
            E::GotEntryDelta32Relaxable
        }
        elf::R_X86_64_GOTPCREL64 => E::GotEntryDelta64,
        elf::R_X86_64_GOT32 => E::GotEntryOffset32,
        elf::R_X86_64_GOT64 | elf::R_X86_64_GOTPLT64 => E::GotEntryOffset64,
        elf::R_X86_64_GOTPC32 => E::GotDelta32,
        elf::R_X86_64_GOTPC64 => E::GotDelta64,
        elf::R_X86_64_GOTOFF64 => E::OffsetFromGot64,
        elf::R_X86_64_PLTOFF64 => E::BranchOffsetFromGot64,
        elf::R_X86_64_TLSGD => E::TlsDescriptorDelta32,
        elf::R_X86_64_TLSLD => E::TlsModuleDelta32,
        elf::R_X86_64_DTPOFF32 => E::TlsOffset32,
        elf::R_X86_64_DTPOFF64 => E::TlsOffset64,
        elf::R_X86_64_SIZE32 => E::Size32,
        elf::R_X86_64_SIZE64 => E::Size64,
        elf::R_X86_64_TPOFF32 => E::TlsDistance32,
        elf::R_X86_64_TPOFF64 => E::TlsDistance64,
        elf::R_X86_64_GOTTPOFF => E::TlsDistanceEntryDelta32Relaxable,
        elf::R_X86_64_CODE_4_GOTTPOFF | elf::R_X86_64_CODE_5_GOTTPOFF | elf::R_X86_64_CODE_6_GOTTPOFF => {
            E::TlsDistanceEntryDelta32
        }
        elf::R_X86_64_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_4_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_5_GOTPC32_TLSDESC
        | elf::R_X86_64_CODE_6_GOTPC32_TLSDESC => E::TlsResolverDelta32,
        // The call goes through whatever pair its register points to; there is nothing to compute.
        elf::R_X86_64_TLSDESC_CALL => return Meaning::Nothing,
        _ => return Meaning::Unsupported,
    })
}

/// The name of a relocation type that has no edge kind, for messages.
pub(super) fn foreign_name(kind: elf::RelocationType) -> Box<str> {
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
