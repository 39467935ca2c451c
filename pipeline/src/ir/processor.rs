//! [`fingerprint`]: the source of LLVM's name and features of this processor, without LLVM.
//!
//! LLVM reads them from `cpuid` and from the system's settings for programs. So do we, and keep the numbers: two machines with the same
//! numbers get the same code from the same LLVM. Numbers that differ between the cores of one machine are left out.

use std::fmt::Write as _;

/// The numbers as text.
///
/// # Cost
/// 20 `cpuid`: 2 µs, or 50 µs where a hypervisor answers each.
#[cfg(target_arch = "x86_64")]
pub(super) fn fingerprint() -> String {
    use std::arch::x86_64::{__cpuid_count, CpuidResult};

    /// Leaf, part of it, and which of the four registers count.
    const LEAVES: [(u32, u32, [bool; 4]); 12] = [
        // The vendor.
        (0, 0, [true, true, true, true]),
        // Family, model and stepping; features. The second register has the number of the core.
        (1, 0, [true, false, true, true]),
        (7, 0, [true, true, true, true]),
        (7, 1, [true, true, true, true]),
        // The room for the registers that the system keeps, which tells those: AVX, AVX-512, AMX, APX.
        (0xd, 0, [true, true, false, true]),
        (0xd, 1, [true, false, false, false]),
        (0x14, 0, [false, true, false, false]),
        (0x19, 0, [false, true, false, false]),
        (0x1e, 1, [true, false, false, false]),
        (0x24, 0, [true, true, false, false]),
        (0x8000_0001, 0, [false, false, true, true]),
        (0x8000_0008, 0, [false, true, false, false]),
    ];
    let last = [0, 0x8000_0000].map(|base| __cpuid_count(base, 0).eax);
    let mut text = String::new();
    for (leaf, part, counts) in LEAVES {
        let exists = last[usize::from(leaf >= 0x8000_0000)] >= leaf;
        let CpuidResult { eax, ebx, ecx, edx } =
            if exists { __cpuid_count(leaf, part) } else { CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 } };
        for (register, counts) in [eax, ebx, ecx, edx].into_iter().zip(counts) {
            if counts {
                let _ = write!(text, "{register:x}.");
            }
        }
    }
    text
}

/// Code is linked for x86-64 alone.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn fingerprint() -> String {
    let mut text = String::new();
    let _ = write!(text, "{}", std::env::consts::ARCH);
    text
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::fingerprint;

    #[test]
    fn all_cores_have_one() {
        let allowed = sched_getaffinity(None).expect("this thread");
        let on = |core: usize| {
            let mut cores = CpuSet::new();
            cores.set(core);
            sched_setaffinity(None, &cores).expect("it was allowed");
            fingerprint()
        };
        // Of this thread alone, which ends with the test.
        let mut seen: Vec<String> =
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).map(on).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
    }
}
