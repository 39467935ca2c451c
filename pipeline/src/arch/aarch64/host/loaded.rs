//! Slots of loaded objects.

use object::elf;

use crate::arch::SlotKind;

/// The kind of the slot that a relocation of a linked file writes, if it is of a symbol.
pub(crate) fn loaded_slot(number: u32) -> Option<SlotKind> {
    match elf::RelocationType(number) {
        elf::R_AARCH64_GLOB_DAT => Some(SlotKind::Any),
        elf::R_AARCH64_JUMP_SLOT => Some(SlotKind::Function),
        elf::R_AARCH64_ABS64 => Some(SlotKind::Pointer),
        elf::R_AARCH64_TLS_DTPMOD | elf::R_AARCH64_TLS_TPREL | elf::R_AARCH64_TLSDESC => {
            Some(SlotKind::ThreadLocal)
        }
        _ => None,
    }
}
