//# stdout: sorted by C: [1, 2, 3, 5, 8]
//# stdout: panic through C: caught at 3
//# stdout: variadic: 7 seven 7.5
//# stdout: assembly: 42, 21
//# stdout: vectors: [11, 22, 33, 44]
//# stdout: errno: No such file or directory
//# stdout: exported: 9
//# stdout: atexit ran
//! C functions called from Rust and Rust called from C; assembly; vector instructions.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Compare = extern "C-unwind" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C-unwind" {
    fn qsort(base: *mut c_void, count: usize, size: usize, compare: Compare);
}

unsafe extern "C" {
    fn snprintf(to: *mut c_char, size: usize, format: *const c_char, ...) -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn atexit(function: extern "C" fn()) -> c_int;
    fn half_of(x: u64) -> u64;
}

global_asm!(
    ".globl half_of",
    ".type half_of, @function",
    "half_of:",
    "mov rax, rdi",
    "shr rax, 1",
    "ret",
    ".size half_of, . - half_of"
);

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

extern "C-unwind" fn by_value(a: *const c_void, b: *const c_void) -> c_int {
    // SAFETY: qsort passes pointers to elements of the array, which are i32.
    let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
    a.cmp(&b) as c_int
}

extern "C-unwind" fn panicking(a: *const c_void, b: *const c_void) -> c_int {
    CALLS.set(CALLS.get() + 1);
    if CALLS.get() == 3 {
        panic!("caught at {}", CALLS.get());
    }
    by_value(a, b)
}

#[unsafe(no_mangle)]
pub extern "C" fn exported_from_rust(x: c_int) -> c_int {
    x * 3
}

extern "C" fn at_exit() {
    println!("atexit ran");
}

fn main() {
    let mut values = [5, 3, 8, 1, 2];
    // SAFETY: the array holds five i32 and the comparison reads i32.
    unsafe { qsort(values.as_mut_ptr().cast(), 5, 4, by_value) };
    println!("sorted by C: {values:?}");
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: as above; the panic leaves through frames that may unwind.
    let caught =
        catch_unwind(AssertUnwindSafe(|| unsafe { qsort(values.as_mut_ptr().cast(), 5, 4, panicking) }));
    println!("panic through C: {}", caught.unwrap_err().downcast::<String>().unwrap());
    let mut buffer = [0_u8; 64];
    // SAFETY: the buffer's size is passed, and the arguments match the format.
    let length = unsafe {
        snprintf(buffer.as_mut_ptr().cast(), 64, c"%d %s %.1f".as_ptr(), 7, c"seven".as_ptr(), 7.5_f64)
    };
    println!("variadic: {}", std::str::from_utf8(&buffer[..length as usize]).unwrap());
    let mut answer: u64 = 40;
    // SAFETY: adds to one register.
    unsafe { asm!("add {0}, 2", inout(reg) answer) };
    // SAFETY: defined above for one integer argument.
    println!("assembly: {answer}, {}", unsafe { half_of(answer) });
    let mut sums = [0_i32; 4];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE2; the arrays hold four i32.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_add_epi32, _mm_loadu_si128, _mm_storeu_si128};
        let load = |values: &[i32; 4]| _mm_loadu_si128(values.as_ptr().cast::<__m128i>());
        let sum = _mm_add_epi32(load(&[1, 2, 3, 4]), load(&[10, 20, 30, 40]));
        _mm_storeu_si128(sums.as_mut_ptr().cast(), sum);
    }
    println!("vectors: {sums:?}");
    let error = std::fs::File::open("/no/such/file").unwrap_err();
    println!("errno: {}", error.to_string().split(" (").next().unwrap());
    // SAFETY: RTLD_DEFAULT is null; the name is a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"getpid".as_ptr()) };
    println!("exported: {}", if found.is_null() { 0 } else { exported_from_rust(3) });
    // SAFETY: the function may be called when the process exits.
    unsafe { atexit(at_exit) };
}
