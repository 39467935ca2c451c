//! The description of a test program: its sources, what it is given, and what it must do.
//!
//! Programs of our own carry their expectations in comments of their first file, so that a reader sees them beside the
//! code. Each line is `//# KEY: VALUE`; an unknown key is an error.
//!
//! | key | meaning |
//! |---|---|
//! | `exit` | the exit code (0 if neither this nor `signal` is given) |
//! | `signal` | the number of the signal that kills it |
//! | `stdout` | one line of standard output; together all of it. `stdout-end` is a last line without a newline |
//! | `stderr` | text that standard error contains |
//! | `arg`, `env`, `stdin` | one argument, one `NAME=VALUE`, one line of standard input |
//! | `flags` | compiler flags for all files; `flags FILE` for one |
//! | `native-link` | flags for the native link alone |
//! | `crate` | a Rust crate of [`ProgramSource`] that the program uses, compiled as an archive |
//! | `entry` | the function that `--entry` names |
//! | `compare` | `stdout` where standard error is not the same in two runs of the native program |
//! | `skip FORM` | why the program cannot be had in that form, natively either |

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cache::{BuildError, io};
use crate::process::{End, Input};
use crate::sources::ProgramSource;

/// The language a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C.
    C,
    /// C++.
    Cxx,
    /// Rust; one file is a crate.
    Rust,
}

/// One file, which becomes one module (Rust: several, where several codegen units are asked for).
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its language.
    pub language: Language,
    /// Flags of this file.
    pub flags: Vec<String>,
    /// Whether it belongs to the program itself rather than to a library it uses.
    pub own: bool,
}

/// A program and what is expected of it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path below `program-tests/programs`, without an extension.
    pub name: String,
    /// Its files, the one with the entry point first.
    pub files: Vec<SourceFile>,
    /// Rust crates it uses, which become archives.
    pub crates: Vec<ProgramSource>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its standard input and environment.
    pub input: Input,
    /// Flags for the native link alone.
    pub native_link: Vec<String>,
    /// The entry point, where it is not `main`.
    pub entry: Option<String>,
    /// How it must end.
    pub end: End,
    /// All of its standard output, where the description says so.
    pub stdout: Option<String>,
    /// Texts in its standard error.
    pub stderr: Vec<String>,
    /// Whether standard error must be the native program's, byte for byte.
    pub compares_stderr: bool,
    /// Forms it cannot be had in, with the reason.
    pub skipped: Vec<(String, String)>,
    /// The optimization level its native objects and its optimized bitcode are compiled at.
    pub level: u8,
    /// How long one run may take.
    pub time_limit: Duration,
}

impl Language {
    /// The language of a file by its extension.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "c" => Some(Self::C),
            "cpp" => Some(Self::Cxx),
            "rs" => Some(Self::Rust),
            _ => None,
        }
    }
}

impl Program {
    /// Reads the program at `program-tests/programs/<name>`: a directory of C or C++ files of which `main.*` comes first, or
    /// one file.
    ///
    /// # Errors
    /// [`BuildError::Io`] if it is not there.
    ///
    /// # Panics
    /// On a comment that begins like a directive and is none: the test would otherwise not test what it says.
    pub fn load(name: &str) -> Result<Self, BuildError> {
        let paths = own_files(name)?;
        let text = std::fs::read_to_string(&paths[0]).map_err(io(paths[0].display()))?;
        let mut program = Self {
            name: name.to_owned(),
            files: paths.into_iter().filter_map(SourceFile::own).collect(),
            crates: Vec::new(),
            args: Vec::new(),
            input: Input::default(),
            native_link: Vec::new(),
            entry: None,
            end: End::Exited(0),
            stdout: None,
            stderr: Vec::new(),
            compares_stderr: true,
            skipped: Vec::new(),
            level: 2,
            time_limit: Duration::from_secs(40),
        };
        for line in text.lines() {
            if let Some(directive) = line.trim_start().strip_prefix("//#") {
                program.direct(directive.strip_prefix(' ').unwrap_or(directive));
            }
        }
        Ok(program)
    }

    /// Adds a C library, whose flags the program's own files get too.
    ///
    /// # Errors
    /// [`BuildError::Source`] if the library is not there.
    pub fn with_library(mut self, source: ProgramSource) -> Result<Self, BuildError> {
        let library = source.locate()?;
        for file in self.files.iter_mut().filter(|file| file.own) {
            file.flags.extend(library.flags.iter().cloned());
        }
        self.files.extend(library.files.into_iter().map(|path| SourceFile {
            path,
            language: Language::C,
            // Warnings of upstream's own build are not ours to read.
            flags: library.flags.iter().cloned().chain(["-w".to_owned()]).collect(),
            own: false,
        }));
        Ok(self)
    }

    /// Compiles the native objects and the optimized bitcode at another level than 2.
    #[must_use]
    pub fn at_level(mut self, level: u8) -> Self {
        self.level = level;
        self
    }

    /// Gives each run this long.
    #[must_use]
    pub fn within(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn with_arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    fn direct(&mut self, directive: &str) {
        let (key, value) = directive.split_once(':').unwrap_or((directive, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let number =
            || value.parse().unwrap_or_else(|_| panic!("{}: `{key}: {value}` is no number", self.name));
        let words = || value.split_whitespace().map(str::to_owned);
        match key.split_once(' ').map_or((key, None), |(key, of)| (key, Some(of))) {
            ("exit", None) => self.end = End::Exited(number()),
            ("signal", None) => self.end = End::Killed(number()),
            ("stdout", None) => {
                let stdout = self.stdout.get_or_insert_default();
                stdout.push_str(value);
                stdout.push('\n');
            }
            ("stdout-end", None) => self.stdout.get_or_insert_default().push_str(value),
            ("stderr", None) => self.stderr.push(value.to_owned()),
            ("arg", None) => self.args.push(value.to_owned()),
            ("env", None) => {
                let (name, value) = value.split_once('=').unwrap_or((value, ""));
                self.input.env.push((name.to_owned(), value.to_owned()));
            }
            ("stdin", None) => {
                self.input.stdin.extend_from_slice(value.as_bytes());
                self.input.stdin.push(b'\n');
            }
            ("flags", of) => {
                let wanted = |file: &SourceFile| of.is_none_or(|of| file.path.ends_with(of));
                let files: Vec<_> = self.files.iter_mut().filter(|file| wanted(file)).collect();
                assert!(!files.is_empty(), "{}: `{directive}` names no file", self.name);
                files.into_iter().for_each(|file| file.flags.extend(words()));
            }
            ("native-link", None) => self.native_link.extend(words()),
            ("crate", None) => {
                let source = ProgramSource::by_name(value);
                self.crates.push(source.unwrap_or_else(|| panic!("{}: no crate `{value}`", self.name)));
            }
            ("entry", None) => self.entry = Some(value.to_owned()),
            ("compare", None) if value == "stdout" => self.compares_stderr = false,
            ("skip", Some(form)) => self.skipped.push((form.to_owned(), value.to_owned())),
            _ => panic!("{}: `//# {directive}` is no directive", self.name),
        }
    }
}

impl SourceFile {
    fn own(path: PathBuf) -> Option<Self> {
        let language = Language::of(&path)?;
        Some(Self { path, language, flags: Vec::new(), own: true })
    }
}

/// Where the programs are.
pub fn programs_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The names of all programs in a directory below `program-tests/programs`, sorted.
///
/// # Errors
/// [`BuildError::Io`] if it cannot be read.
pub fn names_in(directory: &str) -> Result<Vec<String>, BuildError> {
    let path = programs_directory().join(directory);
    let mut names = Vec::new();
    for entry in path.read_dir().map_err(io(path.display()))? {
        let path = entry.map_err(io(path.display()))?.path();
        if path.is_dir() || Language::of(&path).is_some() {
            names.extend(path.file_stem().map(|stem| format!("{directory}/{}", stem.to_string_lossy())));
        }
    }
    names.sort();
    Ok(names)
}

fn own_files(name: &str) -> Result<Vec<PathBuf>, BuildError> {
    let path = programs_directory().join(name);
    for extension in ["c", "cpp", "rs"] {
        let file = path.with_extension(extension);
        if file.is_file() {
            return Ok(vec![file]);
        }
    }
    let entries = path.read_dir().map_err(io(path.display()))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| Language::of(path).is_some()).collect();
    // The file with the entry point first, as on a command line; the rest in the order of their names.
    files.sort_by_key(|path| (path.file_stem().is_none_or(|stem| stem != "main"), path.clone()));
    Ok(files)
}
