//! Calls that linked code does not notice: it goes on after them with every vector register as it was.
//!
//! Linked code that calls a stub of ours may hold values in registers that a call would lose: arguments on their way to a function that is
//! yet to be chosen (`runtime/ifunc.rs`), or any value that a compiler keeps over a call that keeps all registers
//! (`runtime/tls`). The stubs keep the general registers themselves and call through `uruk_call_keeping_vectors`.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

use uruk_core::sync::atomic::{AtomicU64, Ordering};

/// The part of the processor's state that is kept, beyond its general registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RegisterState {
    /// As `xsave` takes them; zero where the processor has only `fxsave`.
    components: u32,
    /// How much room they take.
    bytes: u32,
}

/// Where the assembly finds the [`RegisterState`]: its components in the lower half, the bytes in the upper one.
static STATE: AtomicU64 = AtomicU64::new(word(LEGACY));

const LEGACY: RegisterState = RegisterState { components: 0, bytes: 512 };

/// x87, SSE, AVX, bounds, AVX-512 in three parts, and the general registers of APX. Tiles are not kept: the ABI
/// has no call keep them.
const COMPONENTS: u32 = 1 << 19 | 0xff;

/// Finds out what the processor has. To be called before linked code gets the address of a stub.
///
/// # Cost
/// The first time 9 `cpuid`, each of which a hypervisor may take a microsecond or more to answer; later two moves.
pub(crate) fn prepare() {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    // Relaxed, both: every writer stores the same value, and each thread stores it in `STATE` itself.
    let found = FOUND.load(Ordering::Relaxed);
    if found != 0 {
        return STATE.store(found, Ordering::Relaxed);
    }
    let state = state();
    set(state);
    FOUND.store(word(state), Ordering::Relaxed);
}

const fn word(RegisterState { components, bytes }: RegisterState) -> u64 {
    (bytes as u64) << 32 | components as u64
}

fn set(state: RegisterState) {
    // Relaxed: the value never changes but in tests, and linked code that calls a stub was handed over with more than this.
    STATE.store(word(state), Ordering::Relaxed);
}

fn state() -> RegisterState {
    const OSXSAVE: u32 = 1 << 27;
    const HEADER_END: u32 = 576;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return LEGACY;
    }
    // SAFETY: the operating system has enabled the instruction, as the bit above says.
    let enabled = unsafe { _xgetbv(0) } as u32;
    let components = enabled & COMPONENTS;
    let ends = (2..32).filter(|component| components & 1 << component != 0).map(|component| {
        let part = __cpuid_count(0xd, component);
        part.eax + part.ebx
    });
    let bytes = ends.fold(HEADER_END, u32::max).next_multiple_of(64);
    RegisterState { components, bytes }
}

unsafe extern "C" {
    /// Calls the function in `%r11`, with the argument in `%rdi`, and gives its result in `%rax`. Of the general registers it keeps those
    /// that a call keeps, and of the others all. The stack may be aligned in any way.
    pub(crate) fn uruk_call_keeping_vectors();
}

// The fields that `xrstor` reads from the area's header have to be zero where `xsave` writes nothing. Unwinding out of the function goes by
// the frame pointer.
std::arch::global_asm!(
    ".pushsection .text.uruk_call_keeping_vectors, \"ax\", @progbits",
    ".p2align 4",
    ".globl uruk_call_keeping_vectors",
    ".hidden uruk_call_keeping_vectors",
    ".type uruk_call_keeping_vectors, @function",
    "uruk_call_keeping_vectors:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    "mov rcx, [rip + {state}@GOTPCREL]",
    "mov rcx, [rcx]",
    "mov ebx, ecx",
    "shr rcx, 32",
    "sub rsp, rcx",
    "and rsp, -64",
    "test ebx, ebx",
    "jz 2f",
    "xor edx, edx",
    "mov [rsp + 512], rdx",
    "mov [rsp + 520], rdx",
    "mov [rsp + 528], rdx",
    "mov [rsp + 536], rdx",
    "mov [rsp + 544], rdx",
    "mov [rsp + 552], rdx",
    "mov [rsp + 560], rdx",
    "mov [rsp + 568], rdx",
    "mov eax, ebx",
    "xsave64 [rsp]",
    "call r11",
    "mov rcx, rax",
    "mov eax, ebx",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "mov rax, rcx",
    "jmp 3f",
    "2:",
    "fxsave64 [rsp]",
    "call r11",
    "fxrstor64 [rsp]",
    "3:",
    "mov rbx, [rbp - 8]",
    ".cfi_restore rbx",
    "leave",
    ".cfi_restore rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size uruk_call_keeping_vectors, . - uruk_call_keeping_vectors",
    ".popsection",
    state = sym STATE,
);

/// Held by tests that choose the state, or that would see another test's choice: `fxsave` keeps half of a long register.
#[cfg(test)]
pub(crate) static CHOICE: uruk_core::sync::Mutex<()> = uruk_core::sync::Mutex::new(());

/// Does `action` as on this processor, and as on one that has only `fxsave`.
#[cfg(test)]
pub(crate) fn with_either_state(mut action: impl FnMut()) {
    let _choice = CHOICE.lock();
    for state in [state(), LEGACY] {
        set(state);
        action();
    }
    prepare();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_registers_is_what_the_processor_asks_for() {
        let RegisterState { components, bytes } = state();
        assert!(bytes.is_multiple_of(64) && bytes < 4096, "{bytes}");
        let legacy = components & 0b11;
        assert!(
            components == 0 && bytes == 512 || legacy == 0b11 && bytes >= 576,
            "{components:#x}: {bytes}"
        );
    }
}
