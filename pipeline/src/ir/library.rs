//! Where LLVM is: linked, or loaded when it is first needed.
//!
//! Loading libLLVM takes 11 ms and 55 MiB, and a program made of objects, or of cached entries, needs none of it. With feature `lazy-llvm`
//! the build script writes a function in place of each of LLVM's that is called:
//!
//! ```text
//! LLVMFoo:  jump to where the slot says      slot: at first the line below; afterwards LLVM's function
//!           r11 = the slot, with the name      "LLVMFoo"
//!           jump to uruk_llvm_bind           loads the library, fills the slot, jumps there with all arguments as they were
//! ```
//!
//! The shim also uses variables of LLVM's, for which no such function can stand. So it is a library of its own, which needs LLVM's. It is
//! part of the program as bytes, and is loaded from a file in memory, or a temporary one, right behind LLVM.
//!
//! Another LLVM may be in the process already, and visible to all of it. Functions are found through the handles of ours. The shim names the
//! file that it needs by a number of this process, because a library's name may be that of both. If something of the other is visible, ours
//! looks for its own variables in itself first.
//!
//! With a debugger, LLVM is loaded by a path that leads nowhere outside this process. Otherwise `break get` would stop in each function of
//! LLVM's that is called `get`.
//!
//! Holds: code that calls LLVM through this crate has called [`load`] before, and got an error if the library is not there. Only code that
//! calls inkwell's functions before any of ours can find the library missing inside a call.

pub(super) use place::{library_path, load};

/// LLVM is linked: the system loads it before the program starts.
#[cfg(not(uruk_lazy_llvm))]
mod place {
    use std::path::PathBuf;

    use crate::ir::CompileError;

    #[expect(clippy::unnecessary_wraps, reason = "loaded late, LLVM may not be there")]
    pub(in crate::ir) fn load() -> Result<(), CompileError> {
        Ok(())
    }

    /// The file from which LLVM is loaded when it is first needed; nothing if the system loads it, or it is part of the program.
    pub(in crate::ir) fn library_path() -> Option<PathBuf> {
        None
    }
}

/// LLVM is loaded when it is first needed.
#[cfg(uruk_lazy_llvm)]
mod place {
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use memchr::memmem;
    use uruk_core::sync::atomic::{AtomicPtr, Ordering};

    use crate::debug;
    use crate::ir::{CompileError, library_file};
    use crate::memory::TemporaryFile;

    /// The library that the build script found, and the name by which programs need it.
    const BUILT_WITH: &str = env!("URUK_LIBLLVM");
    const NAME: &str = env!("URUK_LIBLLVM_NAME");
    const VERSION: &str = env!("URUK_LIBLLVM_VERSION");

    /// A function that is called so only where LLVM was built with the C++ library that the shim was built with.
    const GIVES_TEXT: &str = concat!(env!("URUK_LIBLLVM_GIVES_TEXT"), "\0");

    /// The library that is built of the C++ files behind `ffi.rs`.
    const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/uruk_llvm_shim.so"));

    /// The shim with LLVM in its scope, or why there is none. Neither is ever closed.
    static LOADED: OnceLock<Result<Handle, CompileError>> = OnceLock::new();

    #[derive(Clone, Copy, Debug)]
    struct Handle(*mut c_void);

    // SAFETY: any thread may use a handle of `dlopen`.
    unsafe impl Send for Handle {}
    // SAFETY: as above.
    unsafe impl Sync for Handle {}

    /// Sees to it that LLVM can be called.
    ///
    /// # Errors
    /// [`CompileError::Library`], [`CompileError::Shim`].
    ///
    /// # Cost
    /// 11 ms at the first call, a load afterwards.
    pub(in crate::ir) fn load() -> Result<(), CompileError> {
        handle().map(drop)
    }

    /// The file from which LLVM is loaded when it is first needed; nothing if the system loads it, or it is part of the program.
    pub(in crate::ir) fn library_path() -> Option<PathBuf> {
        Some(file().to_owned())
    }

    /// Found once: keys of the cache have its build id.
    fn file() -> &'static Path {
        static FILE: OnceLock<PathBuf> = OnceLock::new();
        FILE.get_or_init(|| library_file::find(NAME, BUILT_WITH))
    }

    fn handle() -> Result<Handle, CompileError> {
        let load = || {
            let own_first = if sees_another() { libc::RTLD_DEEPBIND } else { 0 };
            let file = open_library(file(), own_first)?;
            open_shim(&file, own_first)
        };
        LOADED.get_or_init(load).clone()
    }

    /// Loads LLVM; gives its file.
    fn open_library(path: &Path, own_first: c_int) -> Result<File, CompileError> {
        let failed = |message: String| CompileError::Library { path: path.into(), message };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let hidden = if debug::has_debugger() { hidden_from_debuggers(path) } else { None };
        let opened = hidden.and_then(|hidden| open(&hidden, own_first).ok());
        let llvm = opened.map_or_else(|| open(path, own_first), Ok).map_err(failed)?;
        check(llvm).map_err(|message| {
            // SAFETY: nothing of the library is in use.
            unsafe { libc::dlclose(llvm.0) };
            failed(message)
        })?;
        Ok(file)
    }

    /// Whether a lookup in all of the process finds another LLVM.
    fn sees_another() -> bool {
        [c"LLVMContextCreate", c"_ZN4llvm11LLVMContextC1Ev"].iter().any(|name| {
            // SAFETY: the name ends with a zero byte. Functions of ours that stand for LLVM's are hidden.
            !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
        })
    }

    /// The same file by a path that only this process can follow.
    fn hidden_from_debuggers(path: &Path) -> Option<PathBuf> {
        let path = path.canonicalize().ok()?;
        let root = format!("/proc/self/task/{}/root", std::process::id());
        Some(Path::new(&root).join(path.strip_prefix("/").ok()?))
    }

    /// Whether the shim can call it.
    ///
    /// # Errors
    /// Why not. Nothing but its version has been asked for by then.
    fn check(llvm: Handle) -> Result<(), String> {
        // SAFETY: names end with a zero byte, and the library stays.
        let (version, gives_text) = unsafe {
            let gives_text = libc::dlsym(llvm.0, GIVES_TEXT.as_ptr().cast());
            (libc::dlsym(llvm.0, c"LLVMGetVersion".as_ptr()), gives_text)
        };
        if version.is_null() {
            return Err(format!("it is no LLVM, or an older one than {VERSION}"));
        }
        let mut found = [0; 3];
        let [major, minor, patch] = &mut found;
        // SAFETY: every LLVM that has the function gives it this type.
        unsafe {
            let version: unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) = std::mem::transmute(version);
            version(major, minor, patch);
        }
        let [major, minor, patch] = found;
        if !VERSION.starts_with(&format!("{major}.{minor}.")) {
            return Err(format!(
                "it is LLVM {major}.{minor}.{patch}, and this program was built for {VERSION}"
            ));
        }
        if gives_text.is_null() {
            return Err(
                "it was built with another C++ library than this program, so neither can call the other"
                    .into(),
            );
        }
        Ok(())
    }

    /// The library that LLVM's functions are found through: it needs `llvm`, so they are in its scope.
    fn open_shim(llvm: &File, own_first: c_int) -> Result<Handle, CompileError> {
        let shim = shim_for(llvm.as_raw_fd());
        let loaded = TemporaryFile::with(|file| {
            let mut contents = file.file();
            contents.write_all(&shim)?;
            if debug::has_debugger() {
                file.stay_open();
            }
            open(&file.path()?, own_first).map_err(std::io::Error::other)
        });
        loaded.map_err(|error| CompileError::Shim { message: error.to_string() })
    }

    /// The shim, which needs the open file `number`. Its name of LLVM could be the name of another LLVM that was loaded before.
    fn shim_for(number: RawFd) -> Vec<u8> {
        let mut shim = SHIM.to_vec();
        let needed = concat!("\0", env!("URUK_LIBLLVM_NAME"), "\0").as_bytes();
        // Nothing else in the process spells a path so: the loader keeps it as a name of LLVM.
        let path = format!("/dev//fd/{number}\0");
        let has_room = path.len() < needed.len() && Path::new("/dev/fd").exists();
        if let Some(at) = memmem::find(&shim, needed).filter(|_| has_room) {
            shim[at + 1..][..path.len()].copy_from_slice(path.as_bytes());
        }
        shim
    }

    fn open(path: &Path, own_first: c_int) -> Result<Handle, String> {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | own_first;
        // SAFETY: the library's constructors only fill tables of its own; its symbols are visible only through its handle.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() { Err(failure()) } else { Ok(Handle(handle)) }
    }

    /// The dynamic linker's message about the last failure on this thread.
    fn failure() -> String {
        // SAFETY: the answer is null or a terminated string that stays until the next call on this thread.
        unsafe {
            let message = libc::dlerror();
            if message.is_null() {
                "no reason is given".to_owned()
            } else {
                CStr::from_ptr(message).to_string_lossy().into_owned()
            }
        }
    }

    /// The pointer that a stub jumps through, with the function's name behind it, up to a zero byte.
    #[repr(C)]
    struct LateFunction {
        target: AtomicPtr<c_void>,
        name: [c_char; 1],
    }

    /// Fills a slot; gives its new value.
    ///
    /// # Safety
    /// The slot is one that the build script has written.
    unsafe extern "C" fn fill(slot: *const LateFunction) -> *mut c_void {
        // SAFETY: the caller's obligation; slots are never freed, and only the name's beginning is named by its type.
        let (target, name) = unsafe { (&(*slot).target, &raw const (*slot).name) };
        let handle = handle().unwrap_or_else(|error| give_up(&error));
        // SAFETY: the library stays, and the name ends with a zero byte.
        let function = unsafe { libc::dlsym(handle.0, name.cast()) };
        if function.is_null() {
            give_up(&CompileError::Library { path: file().into(), message: failure() });
        }
        // Relaxed: threads that meet here store the same. A jump of an x86-64 that sees it comes after the library was loaded.
        target.store(function, Ordering::Relaxed);
        function
    }

    /// Ends the process, as the system does where a program's library is missing when it starts.
    #[expect(
        clippy::disallowed_methods,
        reason = "a function of LLVM's was called that is not there, by code that has not asked for it before"
    )]
    fn give_up(error: &CompileError) -> ! {
        // Without a reader of the message nothing is left to do.
        let _ = writeln!(std::io::stderr(), "error: {error}");
        std::process::abort();
    }

    // Every register in which an argument may lie is the same before and after. The stack is too, so that LLVM's function finds its other
    // arguments and the address of its caller.
    std::arch::global_asm!(
        ".pushsection .text.uruk_llvm_bind,\"ax\",@progbits",
        ".p2align 4",
        ".globl uruk_llvm_bind",
        ".hidden uruk_llvm_bind",
        ".type uruk_llvm_bind,@function",
        "uruk_llvm_bind:",
        ".cfi_startproc",
        "pushq %rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset %rbp, -16",
        "movq %rsp, %rbp",
        ".cfi_def_cfa_register %rbp",
        "subq $192, %rsp",
        "movq %rdi, 0(%rsp)",
        "movq %rsi, 8(%rsp)",
        "movq %rdx, 16(%rsp)",
        "movq %rcx, 24(%rsp)",
        "movq %r8, 32(%rsp)",
        "movq %r9, 40(%rsp)",
        "movq %rax, 48(%rsp)",
        "movq %r10, 56(%rsp)",
        "movaps %xmm0, 64(%rsp)",
        "movaps %xmm1, 80(%rsp)",
        "movaps %xmm2, 96(%rsp)",
        "movaps %xmm3, 112(%rsp)",
        "movaps %xmm4, 128(%rsp)",
        "movaps %xmm5, 144(%rsp)",
        "movaps %xmm6, 160(%rsp)",
        "movaps %xmm7, 176(%rsp)",
        "movq %r11, %rdi",
        "callq {fill}",
        "movq %rax, %r11",
        "movaps 176(%rsp), %xmm7",
        "movaps 160(%rsp), %xmm6",
        "movaps 144(%rsp), %xmm5",
        "movaps 128(%rsp), %xmm4",
        "movaps 112(%rsp), %xmm3",
        "movaps 96(%rsp), %xmm2",
        "movaps 80(%rsp), %xmm1",
        "movaps 64(%rsp), %xmm0",
        "movq 56(%rsp), %r10",
        "movq 48(%rsp), %rax",
        "movq 40(%rsp), %r9",
        "movq 32(%rsp), %r8",
        "movq 24(%rsp), %rcx",
        "movq 16(%rsp), %rdx",
        "movq 8(%rsp), %rsi",
        "movq 0(%rsp), %rdi",
        "leave",
        ".cfi_def_cfa %rsp, 8",
        "jmpq *%r11",
        ".cfi_endproc",
        ".size uruk_llvm_bind, .-uruk_llvm_bind",
        ".popsection",
        include_str!(concat!(env!("OUT_DIR"), "/llvm_stubs.s")),
        fill = sym fill,
        options(att_syntax)
    );

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_library_that_is_gone_is_named_with_what_to_do() {
            let error = open_library("/nowhere/libLLVM.so.22.1".as_ref(), 0)
                .expect_err("there is no such directory")
                .to_string();
            assert!(error.starts_with("/nowhere/libLLVM.so.22.1: LLVM cannot be loaded: "), "{error}");
            assert!(error.contains("No such file") && error.contains("libllvm22"), "{error}");
        }

        // As the build script writes them, for a function of a library that LLVM needs.
        std::arch::global_asm!(
            ".pushsection .data.uruk_test_slot,\"aw\",@progbits",
            ".p2align 3",
            "uruk_test_slot: .quad uruk_test_first",
            ".asciz \"snprintf\"",
            ".popsection",
            ".pushsection .text.uruk_test_snprintf,\"ax\",@progbits",
            "uruk_test_snprintf: jmpq *uruk_test_slot(%rip)",
            "uruk_test_first: leaq uruk_test_slot(%rip), %r11",
            "jmp uruk_llvm_bind",
            ".globl uruk_test_snprintf",
            ".popsection",
            options(att_syntax)
        );

        unsafe extern "C" {
            fn uruk_test_snprintf(text: *mut c_char, size: usize, format: *const c_char, ...) -> i32;
        }

        #[test]
        fn a_first_call_has_all_its_arguments_and_so_has_a_second() {
            let mut text = [0_u8; 200];
            for round in 1..=2 {
                // SAFETY: as for the C library's function; there is room for 25 numbers of a few digits.
                let written = unsafe {
                    uruk_test_snprintf(
                        text.as_mut_ptr().cast(),
                        text.len(),
                        c"%d %d %d %d %d %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %d".as_ptr(),
                        round,
                        12,
                        13,
                        14,
                        15,
                        0.5,
                        1.5,
                        2.5,
                        3.5,
                        4.5,
                        5.5,
                        6.5,
                        7.5,
                        8.5,
                        16,
                    )
                };
                let expected = format!("{round} 12 13 14 15 0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 16");
                assert_eq!(str::from_utf8(&text[..written as usize]), Ok(&*expected));
            }
        }
    }
}
