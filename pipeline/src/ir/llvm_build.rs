//! [`llvm_build`]: which LLVM compiles here, read from its file: it is not called, nor need it be loaded.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::library::library_path;

/// Identifies this build of LLVM: the build id of its file, which linkers make from all of its contents. A file without one is identified
/// by its size and the time of its last change.
///
/// # Cost
/// Found once in a process: 100 µs.
pub fn llvm_build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let path = library_path().or_else(loaded_library).unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        build_id(&path).unwrap_or_else(|| size_and_time(&path))
    })
}

/// The file that this process has LLVM from, unless it is linked into the program.
fn loaded_library() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let is_llvm = |path: &&str| path.rsplit('/').next().is_some_and(|file| file.starts_with("libLLVM"));
    path.into_iter().find(is_llvm).map(PathBuf::from)
}

/// Where linkers put the id: into the first pages, behind the headers.
const BEGINNING_BYTES: usize = 16 << 10;

fn build_id(path: &Path) -> Option<String> {
    let mut beginning = vec![0; BEGINNING_BYTES];
    let read = File::open(path).ok()?.read_at(&mut beginning, 0).ok()?;
    let data = &beginning[..read];
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
            }
        }
    }
    None
}

fn size_and_time(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(file) => format!("{} {} {}", file.len(), file.mtime(), file.mtime_nsec()),
        // Nothing tells it from others: none of its entries is anybody else's.
        Err(_) => format!("unknown, of process {}", std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_of_the_library_is_told_by_its_id() {
        let library = library_path().or_else(loaded_library).expect("LLVM is a library here");
        let id = build_id(&library).expect("distributions give libraries one");
        assert_eq!(id, llvm_build());
        assert!(id.len() >= 16, "{id}");
        assert_ne!(build_id(Path::new("/proc/self/exe")).unwrap_or_default(), id);
        assert_eq!(build_id(Path::new("/proc/self/maps")), None);
        assert_ne!(size_and_time(&library), size_and_time(Path::new("/proc/self/exe")));
    }
}
