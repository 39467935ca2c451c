//! [`confine`]: a helper gives up what its work does not need.
//!
//! | system calls | of a confined process |
//! |---|---|
//! | anonymous memory that is not executable, futexes, clocks, signals to itself but `SIGKILL`, its end | as ever |
//! | sending and receiving, words on stdout and stderr, the size of its memory | on the descriptors that it has for that |
//! | opening a file to read, questions about files and descriptors | fail with `EACCES` |
//! | all others: files to be written, sockets, threads, processes, programs, other processes, executable memory | end the process by `SIGSYS` |
//!
//! The process says on stderr which call it is ended for, unless it has blocked the signal, as it does while a thread is started.
//! The filter has a list of calls that pass, so that a call of a later kernel is refused too. It holds for all threads, and cannot be taken off.
//!
//! The system has another means against writing files and connecting, `landlock`. It is left out: no call that it would refuse passes here.
//!
//! **Never** is it said that nothing can be learned: a confined process has its own memory, the environment that it was started with, the name
//! of its directory and the clocks, and it can send bytes to its host.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::{c_int, c_long, c_void, siginfo_t};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Compare,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Calls by their number, each with the rules of which one has to hold; none for a call that always passes.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that pass with any arguments. A thread that was started before may make its first ones (`rseq`, `set_robust_list`) late.
const FREE: [c_long; 33] = [
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range, // the thread that watches the host takes a table of its own
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Questions that fail, as they do where there is no such file: libraries ask them and go on.
const REFUSED: [c_long; 12] = [
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_statx,
];

/// Their forms that only older machines have.
#[cfg(target_arch = "x86_64")]
const OLD_REFUSED: [c_long; 4] = [libc::SYS_access, libc::SYS_lstat, libc::SYS_readlink, libc::SYS_stat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_REFUSED: [c_long; 0] = [];
#[cfg(target_arch = "x86_64")]
const OLD_FREE: [c_long; 1] = [libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FREE: [c_long; 0] = [];

/// The names of calls that a process is likely to be ended for.
const NAMES: [(c_long, &str); 14] = [
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_kill, "kill"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_prlimit64, "prlimit64"),
    (libc::SYS_ptrace, "ptrace"),
    (libc::SYS_socket, "socket"),
    (libc::SYS_tgkill, "tgkill"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_write, "write"),
];

/// The descriptors of a helper that it goes on to use, besides stdout and stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed<'a> {
    /// Its channel.
    pub(super) channel: BorrowedFd<'a>,
    /// The file that says how large it is.
    pub(super) sizes: Option<BorrowedFd<'a>>,
}

/// Confines this process, with all its threads, for the rest of its life.
///
/// # Errors
/// The system has no filters, or refuses them. Then the process may be confined in part.
pub(super) fn confine(needed: Needed<'_>) -> io::Result<()> {
    let refuses =
        program(refused()?, SeccompAction::Allow, SeccompAction::Errno(libc::EACCES.cast_unsigned()))?;
    let passes = program(passing(needed)?, SeccompAction::Trap, SeccompAction::Allow)?;
    tell_of_forbidden_calls()?;
    // Of two filters the stricter answer counts. The second one forbids to install another, so it is the last.
    for filter in [refuses, passes] {
        apply_filter_all_threads(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// The calls that fail, and do no more.
fn refused() -> io::Result<Rules> {
    let mut rules: Rules = REFUSED.into_iter().chain(OLD_REFUSED).map(|call| (call, Vec::new())).collect();
    for (call, flags) in openings() {
        rules.insert(call, vec![only_reads(flags)?]);
    }
    // The second filter is installed with the one that passes.
    let no_privileges = condition(0, Compare::Ne, libc::PR_SET_NO_NEW_PRIVS.cast_unsigned().into())?;
    rules.insert(libc::SYS_prctl, vec![rule(vec![no_privileges])?]);
    Ok(rules)
}

/// The calls that do not end the process.
fn passing(needed: Needed<'_>) -> io::Result<Rules> {
    let mut rules = refused()?;
    rules.extend(FREE.into_iter().chain(OLD_FREE).map(|call| (call, Vec::new())));
    let is = |index, value: i32| rule(vec![condition(index, Compare::Eq, value.cast_unsigned().into())?]);
    let channel = needed.channel.as_raw_fd();
    for call in [libc::SYS_sendto, libc::SYS_recvfrom] {
        rules.insert(call, vec![is(0, channel)?]);
    }
    for call in [libc::SYS_write, libc::SYS_writev] {
        rules.insert(call, vec![is(0, 1)?, is(0, 2)?]);
    }
    if let Some(sizes) = needed.sizes {
        rules.insert(libc::SYS_pread64, vec![is(0, sizes.as_raw_fd())?]);
    }
    let own = std::process::id().cast_signed();
    for (call, signal) in [(libc::SYS_kill, 1), (libc::SYS_tgkill, 2)] {
        // That signal then comes from another process, or from the system: `blame.rs` counts on it.
        let no_kill = only_half(signal, Compare::Ne, libc::SIGKILL.cast_unsigned().into())?;
        let to_itself = condition(0, Compare::Eq, own.cast_unsigned().into())?;
        rules.insert(call, vec![rule(vec![to_itself, no_kill])?]);
    }
    // Limits are looked at, and those of no other process.
    let looks = condition(2, Compare::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![condition(0, Compare::Eq, 0)?, looks])?]);
    let not_executable = || condition(2, Compare::MaskedEq(libc::PROT_EXEC.cast_unsigned().into()), 0);
    let anonymous: u64 = libc::MAP_ANONYMOUS.cast_unsigned().into();
    let of_no_file = condition(3, Compare::MaskedEq(anonymous), anonymous)?;
    rules.insert(libc::SYS_mmap, vec![rule(vec![not_executable()?, of_no_file])?]);
    rules.insert(libc::SYS_mprotect, vec![rule(vec![not_executable()?])?]);
    Ok(rules)
}

/// The calls that open files, each with the argument that has its flags.
fn openings() -> impl Iterator<Item = (c_long, u8)> {
    #[cfg(target_arch = "x86_64")]
    let old = [(libc::SYS_open, 1)];
    #[cfg(not(target_arch = "x86_64"))]
    let old = [];
    old.into_iter().chain([(libc::SYS_openat, 2)])
}

fn only_reads(flags: u8) -> io::Result<SeccompRule> {
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
    rule(vec![condition(flags, Compare::MaskedEq(writes.into()), 0)?])
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(invalid)
}

/// Arguments are compared in full: the system looks at 64 bits of some, and the caller sets them.
fn condition(argument: u8, compare: Compare, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, Width::Qword, compare, value).map_err(invalid)
}

/// The system looks at 32 bits: a comparison of all would let a value pass that differs in the others.
fn only_half(argument: u8, compare: Compare, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, Width::Dword, compare, value).map_err(invalid)
}

fn invalid(error: BackendError) -> io::Error {
    io::Error::other(error)
}

/// Has the process say on stderr which call it is ended for.
fn tell_of_forbidden_calls() -> io::Result<()> {
    // SAFETY: all zeros are a value of this C structure: no flags, an empty mask, the default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = tell_and_end as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is initialized, its handler is a function of the kind that its flags say, which lives as long as the program.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The part of a `siginfo_t` that a filter fills in.
#[repr(C)]
struct ForbiddenCall {
    signal: c_int,
    error: c_int,
    code: c_int,
    address: *mut c_void,
    number: c_int,
}

/// The code of a signal that a filter sends.
const SYS_SECCOMP: c_int = 1;

/// Calls nothing but what a handler of signals may: no memory is taken.
extern "C" fn tell_and_end(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let mut words = [0; 96];
    let mut left = &mut words[..];
    // SAFETY: the system hands a handler with `SA_SIGINFO` a valid `siginfo_t`, which is larger than this part of it, and plain numbers.
    let call = unsafe { info.cast::<ForbiddenCall>().read() };
    if call.code == SYS_SECCOMP {
        let name = NAMES.iter().find(|(number, _)| *number == c_long::from(call.number));
        let _ = match name {
            Some((_, name)) => writeln!(left, "a helper is not allowed to call {name}"),
            None => writeln!(left, "a helper is not allowed system call {}", call.number),
        };
    }
    let length = 96 - left.len();
    // SAFETY: the buffer has so many bytes; the handler is the system's default one; both calls are allowed in handlers. The signal that is
    // raised is blocked until this returns, and ends the process then.
    unsafe {
        libc::write(2, words.as_ptr().cast(), length);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
