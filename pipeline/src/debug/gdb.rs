//! gdb's interface for code that was made while a program runs.
//!
//! gdb stops at a function each time a file is added or removed, and looks at all files again then: two thousand files cost seconds. So
//! pieces of code are gathered, and many of them are one file ([`image`]). They are handed over when someone is about to run them
//! ([`settle`](super::settle)).
//!
//! ```text
//!   register ─▶ pending ─settle─▶ image ─▶ larger image         each is at least twice as large as the next one
//!                                   └─ a piece of it goes ─▶ two images without it, at once
//! ```
//!
//! The list is the process's: LLVM has the same two symbols, and where both are there one of them counts for all. Ours are weak.

use std::ptr;

use uruk_core::sync::Arc;

use super::code::NamedCode;
use super::image;

// As a function of ours would be, but weak: a program that links LLVM's own registration statically has another one.
std::arch::global_asm!(
    ".pushsection .text.__jit_debug_register_code,\"ax\",@progbits",
    ".weak __jit_debug_register_code",
    ".type __jit_debug_register_code, @function",
    "__jit_debug_register_code:",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
    ".pushsection .data.__jit_debug_descriptor,\"aw\",@progbits",
    ".weak __jit_debug_descriptor",
    ".type __jit_debug_descriptor, @object",
    ".balign 8",
    "__jit_debug_descriptor:",
    ".long 1, 0",
    ".quad 0, 0",
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    // Nothing else refers to it.
    ".quad uruk_debugger",
    ".popsection",
);

/// `struct jit_code_entry` of gdb.
#[repr(C)]
struct JitCodeEntry {
    next: *mut JitCodeEntry,
    previous: *mut JitCodeEntry,
    file: *const u8,
    file_bytes: u64,
}

/// `struct jit_descriptor` of gdb.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut JitCodeEntry,
    first: *mut JitCodeEntry,
}

const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

unsafe extern "C" {
    fn __jit_debug_register_code();
    static mut __jit_debug_descriptor: Descriptor;
}

/// The files that gdb knows. Dropping it takes them back.
#[derive(Default)]
pub(super) struct Gdb {
    images: Vec<RegisteredImage>,
    /// A file of nothing, for gdb to look at all breakpoints.
    empty: Option<RegisteredImage>,
}

/// A file that gdb knows. Dropping it takes it back.
struct RegisteredImage {
    entry: Box<JitCodeEntry>,
    /// The bytes that the entry points to.
    _file: Vec<u8>,
    pieces: Vec<Arc<NamedCode>>,
}

// SAFETY: the entry's pointers are followed by gdb, and by us under the lock around `Gdb`.
unsafe impl Send for RegisteredImage {}

impl Gdb {
    /// Has gdb know `pieces`, with what it knew before in fewer files.
    ///
    /// # Safety
    /// The pieces are registered, and so are those that were added before and not removed. They stay so until this returns.
    pub(super) unsafe fn add(&mut self, mut pieces: Vec<Arc<NamedCode>>) {
        pieces.retain(|piece| !piece.code.is_empty());
        // The latest files are the smallest.
        let mut first = self.images.len();
        while let Some(image) = first.checked_sub(1).map(|before| &self.images[before])
            && image.pieces.len() < 2 * (pieces.len() + count(&self.images[first..]))
        {
            first -= 1;
        }
        let absorbed = self.images.drain(first..).collect::<Vec<_>>();
        let before = absorbed.iter().flat_map(|image| image.pieces.iter().cloned());
        let all: Vec<_> = before.chain(pieces).collect();
        // Taken back first: gdb would find two files for one address.
        drop(absorbed);
        for pieces in all.chunks(image::PIECES_MAX) {
            // SAFETY: the caller's obligation.
            self.images.push(unsafe { RegisteredImage::new(pieces.to_vec()) });
        }
    }

    /// A piece is about to go.
    ///
    /// gdb keeps breakpoints in a file that was taken back, until the next file comes. Then it writes back what stood there before: into
    /// other code, if the memory was used again. So a file comes at once, while the piece is still there.
    ///
    /// The pieces that stay become two files, so that the next of them to go is in a smaller one.
    ///
    /// # Safety
    /// As for [`add`](Self::add); the piece itself is still mapped.
    pub(super) unsafe fn remove(&mut self, piece: &Arc<NamedCode>) {
        let known = self.images.iter().enumerate().find_map(|(index, image)| {
            Some((index, image.pieces.iter().position(|known| Arc::ptr_eq(known, piece))?))
        });
        let Some((index, at)) = known else { return };
        let mut pieces = std::mem::take(&mut self.images[index].pieces);
        drop(self.images.remove(index));
        pieces.remove(at);
        let half = pieces.split_off(pieces.len() / 2);
        let halves = [pieces, half].into_iter().filter(|pieces| !pieces.is_empty());
        // SAFETY: the caller's obligation.
        let images: Vec<_> = halves.map(|pieces| unsafe { RegisteredImage::new(pieces) }).collect();
        if images.is_empty() {
            self.empty = None;
            // SAFETY: as above.
            self.empty = Some(unsafe { RegisteredImage::new(Vec::new()) });
        }
        let at = self.images.partition_point(|image| {
            image.pieces.len() >= images.first().map_or(0, |image| image.pieces.len())
        });
        self.images.splice(at..at, images);
    }

    /// How many files gdb knows.
    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.images.len()
    }
}

fn count(images: &[RegisteredImage]) -> usize {
    images.iter().map(|image| image.pieces.len()).sum()
}

impl RegisteredImage {
    /// # Safety
    /// As for [`Gdb::add`].
    unsafe fn new(pieces: Vec<Arc<NamedCode>>) -> Self {
        // SAFETY: the caller's obligation.
        let file = unsafe { image::of(&pieces) };
        let entry = JitCodeEntry {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            file: file.as_ptr(),
            file_bytes: file.len() as u64,
        };
        let mut image = Self { entry: Box::new(entry), _file: file, pieces };
        let entry = &raw mut *image.entry;
        // SAFETY: the list is changed under the lock around `Gdb`. The entry and the file stay where they are until `drop` takes them out.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            (*entry).next = (*descriptor).first;
            if let Some(next) = (*entry).next.as_mut() {
                next.previous = entry;
            }
            (*descriptor).first = entry;
            (*descriptor).relevant = entry;
            (*descriptor).action = REGISTER;
            __jit_debug_register_code();
            (*descriptor).action = 0;
            (*descriptor).relevant = ptr::null_mut();
        }
        image
    }
}

impl Drop for RegisteredImage {
    fn drop(&mut self) {
        let entry = &raw mut *self.entry;
        // SAFETY: as above; the entry is in the list.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            match (*entry).previous.as_mut() {
                Some(previous) => previous.next = (*entry).next,
                None => (*descriptor).first = (*entry).next,
            }
            if let Some(next) = (*entry).next.as_mut() {
                next.previous = (*entry).previous;
            }
            (*descriptor).relevant = entry;
            (*descriptor).action = UNREGISTER;
            __jit_debug_register_code();
            (*descriptor).action = 0;
            (*descriptor).relevant = ptr::null_mut();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u64) -> Arc<NamedCode> {
        // Nothing is read there: it has no unwind table.
        let start = (1 << 60) + number * 64;
        let range = start..start + 64;
        let mut code =
            NamedCode { code: range.clone(), ranges: [range.clone()].into(), ..NamedCode::default() };
        code.symbols.add("function", 0, range, true);
        Arc::new(code)
    }

    /// How many files the process's list has.
    fn listed() -> usize {
        // SAFETY: no other test of this binary changes the list.
        unsafe {
            let descriptor = &raw const __jit_debug_descriptor;
            let mut entry = (*descriptor).first;
            let mut count = 0;
            while let Some(known) = entry.as_ref() {
                assert_eq!(std::slice::from_raw_parts(known.file, 4), b"\x7fELF");
                (entry, count) = (known.next, count + 1);
            }
            count
        }
    }

    #[test]
    fn files_are_few_however_code_comes_and_goes() {
        let mut gdb = Gdb::default();
        let pieces: Vec<_> = (0..1000).map(piece).collect();
        for piece in &pieces {
            // SAFETY: no memory of the pieces is read.
            unsafe { gdb.add(vec![piece.clone()]) };
            assert!(gdb.files() <= 10, "each is twice as large as the next");
            assert_eq!(listed(), gdb.files());
        }
        assert_eq!(count(&gdb.images), 1000);
        for (gone, piece) in pieces.iter().enumerate() {
            // SAFETY: as above.
            unsafe { gdb.remove(piece) };
            assert_eq!(count(&gdb.images), 999 - gone);
            assert!(gdb.files() <= 20);
        }
        assert_eq!((gdb.files(), listed()), (0, 1), "the file of nothing is left");
        drop(gdb);
        assert_eq!(listed(), 0);
    }

    #[test]
    fn the_file_is_one_that_tools_read() {
        use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
        // SAFETY: as above.
        let file = unsafe { image::of(&[piece(1), piece(2)]) };
        let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*file).expect("an ELF file");
        let code: Vec<_> = file.sections().filter(|section| section.name() == Ok(".text")).collect();
        assert_eq!(code.iter().map(|section| section.address() & 0xff).collect::<Vec<_>>(), [64, 128]);
        let symbols: Vec<_> = file.symbols().map(|symbol| (symbol.name(), symbol.address() & 0xff)).collect();
        assert_eq!(symbols, [(Ok("function"), 64), (Ok("function"), 128)]);
    }
}
