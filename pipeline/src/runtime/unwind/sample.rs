//! A linked function with hand-made unwind tables, for tests.

use std::ops::Range;
use std::panic::{catch_unwind, resume_unwind};

use crate::memory::{FinalizedAlloc, InProcessMemoryManager, MemoryManager, SegmentKind, SegmentRequest};

/// A function of this architecture, and its rules.
struct Template {
    code: &'static [u8],
    /// The common entry behind its identifier.
    common: [u8; 16],
    /// Augmentation and rules of the function.
    rules: [u8; 8],
}

/// `sub rsp, 8; call rdi; add rsp, 8; ret`: CFA = rsp + 8, return address at CFA - 8; after four bytes CFA = rsp + 16.
#[cfg(target_arch = "x86_64")]
const TEMPLATE: Template = Template {
    code: &[0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3],
    common: [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0],
    rules: [0, 0x44, 0x0e, 16, 0, 0, 0, 0],
};

/// `stp x29, x30, [sp, #-16]!; blr x0; ldp x29, x30, [sp], #16; ret`: CFA = sp; after four bytes CFA = sp + 16, both saved below it.
#[cfg(target_arch = "aarch64")]
const TEMPLATE: Template = Template {
    code: &[0xfd, 0x7b, 0xbf, 0xa9, 0x00, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6],
    common: [1, b'z', b'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0, 0],
    rules: [0, 0x41, 0x0e, 16, 0x9d, 2, 0x9e, 1],
};

const CODE: &[u8] = TEMPLATE.code;

/// A function that calls what it is given.
pub(super) struct Sample {
    memory: FinalizedAlloc,
}

impl Sample {
    pub(super) fn link() -> Self {
        let manager = InProcessMemoryManager::new().unwrap();
        let request =
            |kind, content_bytes| SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align: 16 };
        let segments =
            [request(SegmentKind::Code, CODE.len()), request(SegmentKind::ReadOnly, 20 + 24 + 24 + 4)];
        let mut flight = manager.allocate("sample", &segments).unwrap();
        flight.working(0).copy_from_slice(CODE);
        let tables = tables(flight.address(0).value(), flight.address(1).value());
        flight.working(1).copy_from_slice(&tables);
        Self { memory: flight.finalize().unwrap() }
    }

    pub(super) fn code(&self) -> Range<u64> {
        let start = self.memory.address(0).value();
        start..start + CODE.len() as u64
    }

    pub(super) fn eh_frame_hdr(&self) -> u64 {
        self.memory.address(1).value()
    }

    /// Calls the function with one that panics, and answers the caught payload.
    pub(super) fn throw_through(&self) -> &'static str {
        extern "C-unwind" fn throw() {
            resume_unwind(Box::new("thrown"));
        }
        type Call = extern "C-unwind" fn(extern "C-unwind" fn());
        // SAFETY: the code takes one function pointer, calls it, and is alive.
        let call: Call = unsafe { std::mem::transmute(self.memory.address(0).to_ptr::<()>()) };
        *catch_unwind(|| call(throw)).unwrap_err().downcast().unwrap()
    }
}

fn tables(code: u64, header: u64) -> Vec<u8> {
    let (cie, fde) = (header + 20, header + 44);
    let relative = |to: u64, from: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
    let mut tables = Vec::new();
    // .eh_frame_hdr: version, encodings, pointer to the frames, one row
    tables.extend([1, 0x1b, 0x03, 0x3b]);
    tables.extend(relative(cie, header + 4));
    tables.extend(1_u32.to_le_bytes());
    tables.extend(relative(code, header));
    tables.extend(relative(fde, header));
    tables.extend(20_u32.to_le_bytes());
    tables.extend([0; 4]);
    tables.extend(TEMPLATE.common);
    tables.extend(20_u32.to_le_bytes());
    tables.extend((fde as u32 + 4).wrapping_sub(cie as u32).to_le_bytes());
    tables.extend(relative(code, fde + 8));
    tables.extend((CODE.len() as u32).to_le_bytes());
    tables.extend(TEMPLATE.rules);
    tables.extend([0; 4]); // the terminator
    tables
}
