//! The kind of thing that lies at an address of a loaded object: code, data, or a thread's instance of a variable.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use uruk_core::sync::Mutex;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use crate::runtime::tls;

/// The segments of the loaded objects, as they were when an address was last not found among them.
#[derive(Debug, Default)]
pub(super) struct Images {
    segments: Mutex<Vec<LoadedSegment>>,
}

#[derive(Debug)]
struct LoadedSegment {
    range: Range<u64>,
    executable: bool,
}

impl Images {
    /// Turns what `dlsym` answered on this thread into a definition that holds for every thread.
    ///
    /// # Cost
    /// A binary search; a walk over the loaded objects for thread-local variables and new libraries.
    pub(super) fn describe(&self, address: u64) -> ExecutorSymbolDef {
        let mut executable = self.executable(address);
        if executable.is_none() {
            if let Some(index) = tls::library_variable(address) {
                let descriptor = tls::library_variable_descriptor(index);
                return ExecutorSymbolDef::new(descriptor, SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL);
            }
            *self.segments.lock() = loaded_segments();
            executable = self.executable(address);
        }
        let kind = if executable == Some(true) { SymbolFlags::CALLABLE } else { SymbolFlags::empty() };
        ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED | kind)
    }

    /// Whether the segment at `address` is executable, if one is known there.
    fn executable(&self, address: u64) -> Option<bool> {
        let segments = self.segments.lock();
        let position = segments.partition_point(|segment| segment.range.start <= address);
        let segment = segments.get(position.checked_sub(1)?)?;
        segment.range.contains(&address).then_some(segment.executable)
    }
}

fn loaded_segments() -> Vec<LoadedSegment> {
    let mut segments = Vec::new();
    // SAFETY: the callback gets back the pointer to `segments`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut segments).cast()) };
    segments.sort_unstable_by_key(|segment: &LoadedSegment| segment.range.start);
    segments
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
    let (info, segments) = unsafe { (&*info, &mut *data.cast::<Vec<LoadedSegment>>()) };
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        segments.push(LoadedSegment {
            range: start..start.wrapping_add(header.p_memsz),
            executable: header.p_flags & libc::PF_X != 0,
        });
    }
    0
}
