//! Where the sources of the real programs lie: C libraries and Rust crates that cargo fetched.
//!
//! They are dependencies of this package under a cfg that is never set, so cargo downloads and pins them but builds
//! none of them; `cargo metadata` says where. Nothing here touches the network by itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// A C library or Rust crate whose source comes with a cargo dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// SQLite, as one file.
    Sqlite,
    /// The Lua 5.4 interpreter's library (no `lua.c`).
    Lua,
    /// The zstd library: compression and decompression.
    Zstd,
    /// zlib.
    Zlib,
    /// LZ4 with its frame format.
    Lz4,
    /// mimalloc, version 2, as one file that includes the others.
    Mimalloc,
    /// The tree-sitter runtime, as one file that includes the others.
    TreeSitter,
    /// tree-sitter's JSON grammar.
    TreeSitterJson,
    /// The Rust crate `itoa`.
    Itoa,
    /// The Rust crate `memchr`.
    Memchr,
    /// The Rust crate `smallvec`.
    Smallvec,
}

/// The files of a library and how its own build compiles them.
#[derive(Clone, Debug)]
pub struct Library {
    /// The directory the sources stand in.
    pub directory: PathBuf,
    /// The files to compile, one unit each.
    pub files: Vec<PathBuf>,
    /// Include paths and defines, also for programs that use the library.
    pub flags: Vec<String>,
}

/// Why a source was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Cargo could not be run, or failed.
    #[error("`cargo metadata` for {manifest} failed: {message}")]
    Metadata {
        /// The manifest whose dependencies were asked for.
        manifest: PathBuf,
        /// The message of cargo or the operating system.
        message: String,
    },
    /// The manifest has no such dependency.
    #[error("package `{package}` is not a dependency of {manifest}; add it under cfg(uruk_program_sources)")]
    Package {
        /// The package looked for.
        package: &'static str,
        /// The manifest whose dependencies were asked for.
        manifest: PathBuf,
    },
    /// The package does not hold what this table expects of it.
    #[error("package `{package}` no longer contains {path}; its layout changed and sources.rs must follow")]
    Layout {
        /// The package looked into.
        package: &'static str,
        /// The path that is missing.
        path: PathBuf,
    },
}

impl ProgramSource {
    /// Every source, in the order of the enum.
    pub const ALL: [Self; 11] = [
        Self::Sqlite,
        Self::Lua,
        Self::Zstd,
        Self::Zlib,
        Self::Lz4,
        Self::Mimalloc,
        Self::TreeSitter,
        Self::TreeSitterJson,
        Self::Itoa,
        Self::Memchr,
        Self::Smallvec,
    ];

    /// The name used on command lines and in programs' descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Lua => "lua",
            Self::Zstd => "zstd",
            Self::Zlib => "zlib",
            Self::Lz4 => "lz4",
            Self::Mimalloc => "mimalloc",
            Self::TreeSitter => "tree-sitter",
            Self::TreeSitterJson => "tree-sitter-json",
            Self::Itoa => "itoa",
            Self::Memchr => "memchr",
            Self::Smallvec => "smallvec",
        }
    }

    /// The source called `name`, if there is one.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }

    /// Locates the library and lists its files.
    ///
    /// # Errors
    /// [`SourceError`] if cargo fails, or the package is not there or laid out differently.
    ///
    /// # Cost
    /// The first call of a process runs `cargo metadata` (a download where nothing was fetched yet).
    pub fn locate(self) -> Result<Library, SourceError> {
        let package = self.package();
        let root = package_directory(package)?;
        let library = match self {
            Self::Sqlite => Library {
                files: vec![root.join("sqlite3/sqlite3.c")],
                // The options of an application that embeds SQLite: threads, full-text and spatial indexes, JSON.
                flags: strings(&[
                    "-DSQLITE_THREADSAFE=1",
                    "-DSQLITE_ENABLE_FTS5",
                    "-DSQLITE_ENABLE_RTREE",
                    "-DSQLITE_ENABLE_STAT4",
                    "-DHAVE_USLEEP=1",
                    "-DHAVE_ISNAN",
                    "-DHAVE_LOCALTIME_R",
                ]),
                directory: root.join("sqlite3"),
            },
            Self::Lua => {
                let directory = subdirectory(&root, "lua-5.4.", package)?;
                Library { files: c_files(&directory), flags: strings(&["-DLUA_USE_LINUX"]), directory }
            }
            Self::Zstd => {
                let lib = root.join("zstd/lib");
                let files = ["common", "compress", "decompress"]
                    .iter()
                    .flat_map(|part| c_files(&lib.join(part)))
                    .collect();
                // The one assembly file would not be bitcode; the C fallback is what it replaces.
                Library { directory: lib, files, flags: strings(&["-DZSTD_DISABLE_ASM"]) }
            }
            Self::Zlib => {
                let directory = root.join("src/zlib");
                let flags = strings(&[
                    "-DSTDC",
                    "-D_LARGEFILE64_SOURCE",
                    "-DHAVE_UNISTD_H",
                    "-Wno-deprecated-non-prototype",
                ]);
                Library { files: c_files(&directory), flags, directory }
            }
            Self::Lz4 => {
                let directory = root.join("liblz4/lib");
                let files = ["lz4.c", "lz4frame.c", "lz4hc.c", "xxhash.c"]
                    .iter()
                    .map(|file| directory.join(file))
                    .collect();
                Library { directory, files, flags: Vec::new() }
            }
            Self::Mimalloc => {
                let version = root.join("c_src/mimalloc/v2");
                let include = version.join("include");
                let flags =
                    vec![include_flag(&include), "-DMI_DEBUG=0".to_owned(), "-fno-builtin-malloc".to_owned()];
                Library { files: vec![version.join("src/static.c")], directory: version.join("src"), flags }
            }
            Self::TreeSitter => {
                let include = include_flag(&root.join("include"));
                let mut flags = vec![include];
                flags.extend(strings(&["-std=c11", "-D_POSIX_C_SOURCE=200112L", "-D_DEFAULT_SOURCE"]));
                Library { files: vec![root.join("src/lib.c")], directory: root.join("src"), flags }
            }
            Self::TreeSitterJson => Library {
                files: vec![root.join("src/parser.c")],
                directory: root.join("src"),
                flags: Vec::new(),
            },
            Self::Itoa | Self::Memchr | Self::Smallvec => Library {
                files: vec![root.join("src/lib.rs")],
                directory: root.join("src"),
                flags: Vec::new(),
            },
        };
        library.checked(package, self)
    }

    /// The cargo package that carries the source.
    fn package(self) -> &'static str {
        match self {
            Self::Sqlite => "libsqlite3-sys",
            Self::Lua => "lua-src",
            Self::Zstd => "zstd-sys",
            Self::Zlib => "libz-sys",
            Self::Lz4 => "lz4-sys",
            Self::Mimalloc => "libmimalloc-sys",
            Self::TreeSitter => "tree-sitter",
            Self::TreeSitterJson => "tree-sitter-json",
            Self::Itoa => "itoa",
            Self::Memchr => "memchr",
            Self::Smallvec => "smallvec",
        }
    }

    fn is_rust(self) -> bool {
        matches!(self, Self::Itoa | Self::Memchr | Self::Smallvec)
    }
}

impl Library {
    /// Checks that every file is there, and adds the library's own directory to its include paths.
    fn checked(mut self, package: &'static str, source: ProgramSource) -> Result<Self, SourceError> {
        let missing = self.files.iter().find(|file| !file.is_file());
        if let Some(path) = missing.cloned().or_else(|| self.files.is_empty().then(|| self.directory.clone()))
        {
            return Err(SourceError::Layout { package, path });
        }
        if !source.is_rust() {
            self.flags.push(include_flag(&self.directory));
        }
        Ok(self)
    }
}

/// The directory cargo unpacked `package` into: the one that this package itself depends on, where several versions
/// of it are about.
fn package_directory(package: &'static str) -> Result<PathBuf, SourceError> {
    let manifest = manifest();
    let metadata = metadata()
        .as_ref()
        .map_err(|message| SourceError::Metadata { manifest: manifest.clone(), message: message.clone() })?;
    let found = own_dependencies(metadata, &manifest).find(|candidate| candidate["name"] == package);
    let path =
        found.and_then(|found| Path::new(found["manifest_path"].as_str()?).parent().map(Path::to_owned));
    path.ok_or(SourceError::Package { package, manifest })
}

/// The packages that the package of `manifest` names as dependencies, of every platform and cfg.
fn own_dependencies<'a>(metadata: &'a Value, manifest: &Path) -> impl Iterator<Item = &'a Value> {
    let packages = list(&metadata["packages"]);
    let own = packages
        .iter()
        .find(|package| package["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest));
    let own_id = own.map_or(&Value::Null, |package| &package["id"]);
    let node = list(&metadata["resolve"]["nodes"]).iter().find(|node| &node["id"] == own_id);
    let wanted = node.map_or(&[][..], |node| list(&node["dependencies"]));
    packages.iter().filter(move |package| wanted.contains(&package["id"]))
}

/// The workspace's `target` directory, as cargo names it.
///
/// # Errors
/// [`SourceError::Metadata`] if cargo does not say.
pub fn target_directory() -> Result<PathBuf, SourceError> {
    let manifest = manifest();
    let failed =
        |message: &str| SourceError::Metadata { manifest: manifest.clone(), message: message.to_owned() };
    let metadata = metadata().as_ref().map_err(|message| failed(message))?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| failed("it names no target_directory"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")
}

/// The answer of `cargo metadata`, asked once per process.
fn metadata() -> &'static Result<Value, String> {
    static METADATA: OnceLock<Result<Value, String>> = OnceLock::new();
    METADATA.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    })
}

/// The subdirectory of `root` whose name begins with `prefix`.
fn subdirectory(root: &Path, prefix: &str, package: &'static str) -> Result<PathBuf, SourceError> {
    let entries = root.read_dir().into_iter().flatten().flatten();
    let mut matching: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    matching.sort();
    matching.pop().ok_or_else(|| SourceError::Layout { package, path: root.join(format!("{prefix}*")) })
}

/// The C files directly in `directory`, sorted, so that every machine compiles and links them in one order.
fn c_files(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "c")).collect();
    files.sort();
    files
}

fn include_flag(directory: &Path) -> String {
    format!("-I{}", directory.display())
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_found_and_complete() {
        for source in ProgramSource::ALL {
            let library = source.locate().unwrap_or_else(|error| panic!("{}: {error}", source.name()));
            assert!(library.files.iter().all(|file| file.is_file()), "{library:?}");
        }
    }

    #[test]
    fn names_lead_back_to_their_source() {
        for source in ProgramSource::ALL {
            assert_eq!(ProgramSource::by_name(source.name()), Some(source));
        }
        assert_eq!(ProgramSource::by_name("no such library"), None);
    }
}
