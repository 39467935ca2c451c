//! Where the C compiler keeps its support library.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories that hold one directory for each version of GCC, as Debian, Fedora and Arch have them.
const ROOTS: [&str; 3] =
    ["/usr/lib/gcc/x86_64-linux-gnu", "/usr/lib/gcc/x86_64-redhat-linux", "/usr/lib/gcc/x86_64-pc-linux-gnu"];

/// The newest `libgcc.a` of the machine.
pub(crate) fn find() -> Option<PathBuf> {
    ROOTS.iter().find_map(|root| newest(Path::new(root)))
}

fn newest(root: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(root).ok()?.flatten();
    let numbered = versions.filter_map(|entry| {
        let archive = entry.path().join("libgcc.a");
        let name = entry.file_name();
        let version: u32 = name.to_str()?.split('.').next()?.parse().ok()?;
        archive.is_file().then_some((version, archive))
    });
    numbered.max().map(|(_, archive)| archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_with_the_library_is_taken() {
        let root = std::env::temp_dir().join(format!("uruk-compiler-runtime-{}", std::process::id()));
        for (version, has_library) in [("9", true), ("12", true), ("13", false), ("plugins", true)] {
            let directory = root.join(version);
            fs::create_dir_all(&directory).expect("the temporary directory is writable");
            if has_library {
                fs::write(directory.join("libgcc.a"), b"").expect("the temporary directory is writable");
            }
        }
        assert_eq!(newest(&root), Some(root.join("12/libgcc.a")));
        assert_eq!(newest(&root.join("9/none")), None);
        fs::remove_dir_all(&root).expect("it was made above");
    }
}
