//! Frames of a thread that a signal has stopped, found in the signal's handler.
//!
//! ```text
//!   pc ─▶ find_object ─▶ .eh_frame_hdr ─binary search─▶ entry of the function ─▶ rules ─▶ registers of the caller
//! ```
//!
//! Linked code is found in the unwinder's own index, and libraries by glibc's `_dl_find_object`: both may be called in handlers, unlike
//! `_Unwind_Backtrace`, which may allocate and lock when it is first used. Rules are evaluated on the stack of the handler.
//!
//! **Never** does the walk allocate, take a lock, or read memory that may not be there: the system copies the memory, and refuses what is
//! not mapped.
//!
//! It ends where no unwind table says how to go on: in code without one, or with rules that are expressions, as the trampoline behind
//! another signal handler has them.

use std::ffi::c_void;
use std::fmt::{self, Write};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection as _, UnwindTableRow,
};

use super::unwind::{DlFindObject, find_object};
use crate::arch::host::{
    GOES_ON, IS_CALLED_THROUGH_STACK, REGISTERS, RETURN_ADDRESS, STACK_POINTER, registers_of_signal,
};
use crate::debug;

/// So many frames are shown.
const FRAMES_MAX: usize = 64;

/// Bytes of one entry of an unwind table at most. Those of compilers have a few hundred.
const RECORD_BYTES_MAX: usize = 4096;

/// The longest path that the system has.
const PATH_BYTES_MAX: u64 = 4096;

/// Registers of the stopped thread.
#[derive(Clone, Copy)]
struct Registers([u64; REGISTERS]);

/// Room for the rules of one function.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl Registers {
    /// Those of the thread at the moment of the signal.
    ///
    /// # Safety
    /// `context` is the third argument of a signal handler.
    unsafe fn of_signal(context: *const c_void) -> Self {
        // SAFETY: the caller's obligation.
        Self(unsafe { registers_of_signal(context) })
    }

    /// Where the code goes on.
    fn pc(&self) -> u64 {
        self.0[GOES_ON]
    }

    /// The caller's. `None` where the frames end, or where it cannot be known. `is_call` says whether the frame stands behind a call, which
    /// may be the last instruction of its function.
    fn of_caller(&self, is_call: bool) -> Option<Self> {
        if !is_call && self.pc() == 0 {
            return self.behind_call(); // of nothing
        }
        let pc = self.pc().checked_sub(u64::from(is_call))?;
        let Some(hdr) = table_of(pc) else {
            // A jump to where no code is, mostly by a call.
            return (!is_call).then(|| self.behind_call())?;
        };
        let record = find(hdr, pc)?;
        self.by(&Records::read(record)?, pc, is_call)
    }

    /// The caller's, where a call has led to no function.
    fn behind_call(mut self) -> Option<Self> {
        if IS_CALLED_THROUGH_STACK {
            let address = self.0[STACK_POINTER];
            self.0[GOES_ON] = word(address)?;
            self.0[STACK_POINTER] = address.wrapping_add(8);
        } else {
            self.0[GOES_ON] = self.0[RETURN_ADDRESS];
        }
        Some(self)
    }

    /// Applies the rules that the function has at `pc`.
    fn by(&self, records: &Records, pc: u64, is_call: bool) -> Option<Self> {
        let (section, bases) = (records.section(), records.bases());
        let entry = section.fde_from_offset(&bases, records.entry.into(), |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        });
        let entry = entry.ok()?;
        if entry.is_signal_trampoline() {
            return None;
        }
        let mut context = UnwindContext::<usize, OnStack>::new_in();
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, pc).ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let cfa = self.0.get(usize::from(register.0))?.wrapping_add_signed(offset);
        let mut caller = *self;
        for number in 0..=RETURN_ADDRESS.max(STACK_POINTER) {
            let rule = row.register(Register(number as u16));
            let is_return_address = number == RETURN_ADDRESS;
            caller.0[number] = match rule {
                Some(RegisterRule::Offset(offset)) => word(cfa.wrapping_add_signed(offset))?,
                Some(RegisterRule::ValOffset(offset)) => cfa.wrapping_add_signed(offset),
                Some(RegisterRule::Register(other)) => *self.0.get(usize::from(other.0))?,
                None | Some(RegisterRule::SameValue | RegisterRule::Undefined) if !is_return_address => {
                    continue;
                }
                // A function that calls none leaves it in its register.
                None | Some(RegisterRule::SameValue) if !IS_CALLED_THROUGH_STACK => continue,
                _ => return None,
            };
        }
        (caller.0[STACK_POINTER], caller.0[GOES_ON]) = (cfa, caller.0[RETURN_ADDRESS]);
        // A frame that has no size would be its own caller, but for a function that calls none.
        let has_size = cfa > self.0[STACK_POINTER] || !IS_CALLED_THROUGH_STACK && !is_call;
        (caller.pc() != 0 && has_size).then_some(caller)
    }
}

/// Writes the frames of the thread that a signal has stopped, innermost first: a line each.
///
/// # Errors
/// Those of `out`.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn write_of_signal(out: &mut dyn Write, context: *const c_void) -> fmt::Result {
    // SAFETY: the caller's obligation.
    let mut registers = unsafe { Registers::of_signal(context) };
    for number in 0..FRAMES_MAX {
        let is_call = number > 0;
        write_frame(out, number, registers.pc(), is_call)?;
        match registers.of_caller(is_call) {
            Some(caller) => registers = caller,
            None => return Ok(()),
        }
    }
    writeln!(out, "  ... and more")
}

/// The address in the innermost frame that `is_wanted`, of the thread that a signal has stopped; in the innermost of all if none is.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn find_of_signal(context: *const c_void, is_wanted: impl Fn(u64) -> bool) -> u64 {
    // SAFETY: the caller's obligation.
    let mut registers = unsafe { Registers::of_signal(context) };
    let innermost = registers.pc();
    for number in 0..FRAMES_MAX {
        let is_call = number > 0;
        let address = registers.pc().wrapping_sub(u64::from(is_call));
        if is_wanted(address) {
            return address;
        }
        match registers.of_caller(is_call) {
            Some(caller) => registers = caller,
            None => break,
        }
    }
    innermost
}

fn write_frame(out: &mut dyn Write, number: usize, pc: u64, is_call: bool) -> fmt::Result {
    write!(out, "{number:>4}: {pc:#018x} ")?;
    let back = u64::from(is_call);
    let mut written = Ok(());
    let named = debug::try_symbol_at(pc.wrapping_sub(back), &mut |symbol, offset, unit| {
        written = write!(out, "{symbol}+{:#x} ({unit})", offset + back);
    });
    written?;
    match named {
        Some(true) => writeln!(out),
        Some(false) => write_module(out, pc),
        None => writeln!(out, "(the table of names is in use)"),
    }
}

/// The file and the offset of code that was not linked here.
fn write_module(out: &mut dyn Write, pc: u64) -> fmt::Result {
    let Some(found) = find_code(pc) else { return writeln!(out, "(no code that is known)") };
    // glibc's `struct link_map` begins with the base and a pointer to the name.
    let base = word(found.link_map()).unwrap_or(pc);
    let name = word(found.link_map().wrapping_add(8)).unwrap_or(0);
    // The executable has an empty name.
    write!(out, "{}+{:#x}", Path(name), pc.wrapping_sub(base))?;
    writeln!(out)
}

/// The last part of the path at an address, which a zero ends.
struct Path(u64);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 128];
        let mut len = 0;
        let bytes = (0..PATH_BYTES_MAX).map_while(|at| read::<1>(self.0.wrapping_add(at)));
        for [byte] in bytes.take_while(|byte| *byte != [0]) {
            if byte == b'/' {
                len = 0;
            } else if let Some(place) = text.get_mut(len) {
                (*place, len) = (byte, len + 1);
            }
        }
        f.write_str(if len == 0 { "the command" } else { std::str::from_utf8(&text[..len]).unwrap_or("?") })
    }
}

/// The `.eh_frame_hdr` of the code at an address, and the table behind it.
fn table_of(pc: u64) -> Option<u64> {
    find_code(pc).map(|found| found.eh_frame_hdr()).filter(|&hdr| hdr != 0)
}

/// The code at an address.
fn find_code(pc: u64) -> Option<DlFindObject> {
    let mut found = DlFindObject::default();
    let pc = std::ptr::with_exposed_provenance_mut(pc as usize);
    // SAFETY: `found` is a `struct dl_find_object`.
    let is_found = unsafe { find_object(pc, &raw mut found) } == 0;
    is_found.then_some(found)
}

/// The address of the entry that may cover `pc`.
fn find(hdr: u64, pc: u64) -> Option<u64> {
    // Version 1; a relative pointer to the records, a count of 4 bytes, pairs of 4 bytes relative to the table: as all linkers write it.
    if read::<4>(hdr)? != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let count = u32::from_le_bytes(read(hdr + 8)?);
    let relative = |address: u64| Some(hdr.wrapping_add_signed(i32::from_le_bytes(read(address)?).into()));
    let pair = |index: u32| hdr + 12 + u64::from(index) * 8;
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if relative(pair(middle))? <= pc { low = middle + 1 } else { high = middle }
    }
    relative(pair(low.checked_sub(1)?) + 4)
}

/// Copies of the two records of one function: what is common to several, and its own entry.
struct Records {
    bytes: [u8; 2 * RECORD_BYTES_MAX],
    len: usize,
    /// Where the entry stands.
    entry: usize,
    /// The address of its first byte.
    address: u64,
}

impl Records {
    /// Copies the entry at `address` and its common record, which are moved next to each other. Pointers that are relative to their own
    /// place are those of the entry.
    fn read(address: u64) -> Option<Self> {
        let mut records = Self { bytes: [0; 2 * RECORD_BYTES_MAX], len: 0, entry: 0, address };
        let distance = u32::from_le_bytes(read(address + 4)?);
        let common = (address + 4).checked_sub(u64::from(distance))?;
        records.append(common)?;
        records.entry = records.len;
        records.append(address)?;
        // The entry says how far its common record is.
        let distance = u32::try_from(records.entry + 4).ok()?;
        records.bytes[records.entry + 4..records.entry + 8].copy_from_slice(&distance.to_le_bytes());
        Some(records)
    }

    fn append(&mut self, address: u64) -> Option<()> {
        let size = usize::try_from(u32::from_le_bytes(read(address)?)).ok()?.checked_add(4)?;
        if size > RECORD_BYTES_MAX {
            return None;
        }
        copy(address, &mut self.bytes[self.len..self.len + size])?;
        self.len += size;
        Some(())
    }

    fn section(&self) -> EhFrame<EndianSlice<'_, LittleEndian>> {
        EhFrame::new(&self.bytes[..self.len], LittleEndian)
    }

    /// Where the section would begin, so that the entry lies at its own address.
    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address.wrapping_sub(self.entry as u64))
    }
}

/// Eight bytes at an address.
fn word(address: u64) -> Option<u64> {
    read(address).map(u64::from_le_bytes)
}

fn read<const N: usize>(address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    copy(address, &mut bytes)?;
    Some(bytes)
}

/// Copies memory of this process, if it is there.
fn copy(address: u64, into: &mut [u8]) -> Option<()> {
    let address = std::ptr::with_exposed_provenance_mut(usize::try_from(address).ok()?);
    let from = libc::iovec { iov_base: address, iov_len: into.len() };
    let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the system writes to `into`, and answers with an error where `address` cannot be read. The call may be made in handlers.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    if usize::try_from(copied) == Ok(into.len()) { Some(()) } else { copy_by_file(address, into) }
}

/// The same where the system does not have that call, as emulators, or forbids it, as sandboxes.
fn copy_by_file(address: *mut c_void, into: &mut [u8]) -> Option<()> {
    let offset = libc::off_t::try_from(address.addr()).ok()?;
    // SAFETY: as in `copy`; the descriptor is of this function alone. All three may be called in handlers.
    let copied = unsafe {
        let file = libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let copied = libc::pread(file, into.as_mut_ptr().cast(), into.len(), offset);
        libc::close(file);
        copied
    };
    (usize::try_from(copied) == Ok(into.len())).then_some(())
}
