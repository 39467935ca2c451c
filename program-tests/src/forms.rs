//! The forms a program is had in: how its files become what `uruk run` is given.
//!
//! The native executable that everything is compared with is linked from the PIE objects, as the system's compiler would
//! by default; for the archive form it is linked from that archive, because members that are not needed stay out of both.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{BuildError, CacheKey, io, run_tool};
use crate::program::{Language, Program, SourceFile};
use crate::sources::ProgramSource;

/// How a program's files are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bitcode as the front end emits it, without optimization.
    BitcodeO0,
    /// Bitcode for the optimizer, before it has run: all of its work is the engine's.
    BitcodeO2,
    /// Textual LLVM IR of the same.
    Text,
    /// The C and C++ sources themselves.
    Source,
    /// Native objects, position independent.
    Pic,
    /// Native objects for an executable, which is what compilers emit by default.
    Pie,
    /// Native objects that hold addresses in 32 bits, for an executable at a fixed place.
    Fixed,
    /// Native objects in the large code model.
    Large,
    /// One archive of the PIC objects.
    Archive,
    /// Bitcode and PIC objects in turn.
    Mixed,
}

impl Form {
    /// Whether the engine compiles some of its files.
    pub fn is_ir(self) -> bool {
        matches!(self, Self::BitcodeO0 | Self::BitcodeO2 | Self::Text | Self::Mixed)
    }

    /// The name used in reports and in `skip` directives.
    pub fn name(self) -> &'static str {
        match self {
            Self::BitcodeO0 => "bitcode-O0",
            Self::BitcodeO2 => "bitcode-O2",
            Self::Text => "text",
            Self::Source => "source",
            Self::Pic => "pic",
            Self::Pie => "pie",
            Self::Fixed => "fixed",
            Self::Large => "large",
            Self::Archive => "archive",
            Self::Mixed => "mixed",
        }
    }

    /// The form called `name`, if there is one.
    pub fn by_name(name: &str) -> Option<Self> {
        let all = [
            Self::BitcodeO0,
            Self::BitcodeO2,
            Self::Text,
            Self::Source,
            Self::Pic,
            Self::Pie,
            Self::Fixed,
            Self::Large,
            Self::Archive,
            Self::Mixed,
        ];
        all.into_iter().find(|form| form.name() == name)
    }

    fn clang_flags(self, level: u8) -> Vec<String> {
        let words = match self {
            // Without the flag, clang marks every function as not to be optimized.
            Self::BitcodeO0 => "-O0 -Xclang -disable-O0-optnone -emit-llvm -c".to_owned(),
            Self::BitcodeO2 | Self::Mixed => format!("-O{level} -Xclang -disable-llvm-passes -emit-llvm -c"),
            Self::Text => format!("-O{level} -Xclang -disable-llvm-passes -emit-llvm -S"),
            Self::Source => String::new(),
            Self::Pic | Self::Archive => format!("-O{level} -fPIC -c"),
            Self::Pie => format!("-O{level} -fPIE -c"),
            Self::Fixed => format!("-O{level} -fno-pic -c"),
            Self::Large => format!("-O{level} -fPIC -mcmodel=large -c"),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn rustc_flags(self, level: u8) -> Vec<String> {
        let words = match self {
            Self::BitcodeO0 => "--emit=llvm-bc -C opt-level=0".to_owned(),
            Self::BitcodeO2 | Self::Mixed => {
                format!("--emit=llvm-bc -C opt-level={level} -C codegen-units=4 -C no-prepopulate-passes")
            }
            Self::Text => format!("--emit=llvm-ir -C opt-level={level} -C codegen-units=1"),
            Self::Pic | Self::Archive => format!("--emit=obj -C opt-level={level} -C codegen-units=4"),
            Self::Pie => {
                format!("--emit=obj -C opt-level={level} -C codegen-units=1 -C relocation-model=pie")
            }
            Self::Fixed => {
                format!("--emit=obj -C opt-level={level} -C codegen-units=2 -C relocation-model=static")
            }
            Self::Large => format!("--emit=obj -C opt-level={level} -C codegen-units=4 -C code-model=large"),
            Self::Source => String::new(),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn extension(self) -> &'static str {
        match self {
            Self::BitcodeO0 | Self::BitcodeO2 | Self::Mixed => "bc",
            Self::Text => "ll",
            _ => "o",
        }
    }
}

impl Program {
    /// Builds the program in `form` and returns the files to give to `uruk run`, in order.
    ///
    /// # Errors
    /// [`BuildError`] if a tool fails.
    pub fn build(&self, form: Form) -> Result<Vec<PathBuf>, BuildError> {
        let mut files = match form {
            Form::Source => self.files.iter().map(|file| file.path.clone()).collect(),
            Form::Archive => vec![archive(&self.build_modules(Form::Pic)?)?],
            Form::Mixed => self.build_mixed()?,
            form => self.build_modules(form)?,
        };
        for &source in &self.crates {
            files.push(rust_crate(source)?.archive);
        }
        Ok(files)
    }

    /// Builds the native executable that a run of `form` is compared with.
    ///
    /// # Errors
    /// [`BuildError`] if a tool fails.
    pub fn build_native(&self, form: Form) -> Result<PathBuf, BuildError> {
        if self.files.iter().any(|file| file.language == Language::Rust) {
            return self.build_native_rust();
        }
        let objects = match form {
            Form::Archive => vec![archive(&self.build_modules(Form::Pic)?)?],
            _ => self.build_modules(Form::Pie)?,
        };
        let tool = clang(self.files.iter().any(|file| file.language == Language::Cxx));
        let mut words: Vec<String> = objects.iter().map(|path| path.display().to_string()).collect();
        words.extend(["-rdynamic", "-lm", "-ldl", "-pthread"].map(str::to_owned));
        words.extend(self.native_link.iter().cloned());
        let mut key = CacheKey::new(tool)?;
        words.iter().for_each(|word| _ = key.text(word));
        let made = key.get_or_make(|directory| {
            run_tool(Command::new(tool).args(&words).arg("-o").arg(directory.join("program")))
        })?;
        Ok(made.join("program"))
    }

    fn build_modules(&self, form: Form) -> Result<Vec<PathBuf>, BuildError> {
        let mut modules = Vec::new();
        for file in &self.files {
            modules.extend(self.compile(file, form)?);
        }
        Ok(modules)
    }

    fn build_mixed(&self) -> Result<Vec<PathBuf>, BuildError> {
        let mut modules = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            let form = if index % 2 == 0 { Form::BitcodeO2 } else { Form::Pic };
            modules.extend(self.compile(file, form)?);
        }
        Ok(modules)
    }

    fn compile(&self, file: &SourceFile, form: Form) -> Result<Vec<PathBuf>, BuildError> {
        match file.language {
            Language::C | Language::Cxx => Ok(vec![compile_clang(file, form, self.level)?]),
            Language::Rust => self.compile_rust(file, form),
        }
    }

    fn compile_rust(&self, file: &SourceFile, form: Form) -> Result<Vec<PathBuf>, BuildError> {
        let mut words = form.rustc_flags(self.level);
        words.extend(self.rust_words(file)?);
        let made = rustc(file, &words, &self.crates, |command, directory| {
            command.arg("--out-dir").arg(directory);
        })?;
        let mut modules = files_with_extension(&made, form.extension())?;
        if form == Form::Text {
            modules.truncate(1);
        }
        Ok(modules)
    }

    fn build_native_rust(&self) -> Result<PathBuf, BuildError> {
        let file = &self.files[0];
        let mut words = self.rust_words(file)?;
        words.extend(["-C", "rpath", "-C", "opt-level=1"].map(str::to_owned));
        let made = rustc(file, &words, &self.crates, |command, directory| {
            command.arg("-o").arg(directory.join("program"));
        })?;
        Ok(made.join("program"))
    }

    fn rust_words(&self, file: &SourceFile) -> Result<Vec<String>, BuildError> {
        let mut words: Vec<String> = ["--edition", "2024", "-C", "prefer-dynamic"].map(str::to_owned).into();
        for &source in &self.crates {
            let library = rust_crate(source)?.library;
            words.extend(["--extern".to_owned(), format!("{}={}", source.name(), library.display())]);
        }
        words.extend(file.flags.iter().cloned());
        Ok(words)
    }
}

/// The shared standard library that Rust programs are run against.
///
/// # Errors
/// [`BuildError::Io`] if rustc does not say where it is.
pub fn rust_std() -> Result<PathBuf, BuildError> {
    let mut command = Command::new("rustc");
    let output = command.args(["--print", "target-libdir"]).output().map_err(io("rustc"))?;
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let is_std =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libstd-"));
    let found = files_with_extension(&directory, "so")?.into_iter().find(|path| is_std(path));
    found.ok_or_else(|| io(directory.display())(std::io::Error::other("no libstd-*.so in it")))
}

/// The compiler driver for C or C++.
pub fn clang(cxx: bool) -> &'static str {
    if cxx { "clang++-22" } else { "clang-22" }
}

fn compile_clang(file: &SourceFile, form: Form, level: u8) -> Result<PathBuf, BuildError> {
    let tool = clang(file.language == Language::Cxx);
    let mut words = form.clang_flags(level);
    words.extend(file.flags.iter().cloned());
    let mut key = CacheKey::new(tool)?;
    words.iter().for_each(|word| _ = key.text(word));
    hash_source(&mut key, file)?;
    let stem = file.path.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}.{}", form.extension());
    let made = key.get_or_make(|directory| {
        run_tool(Command::new(tool).args(&words).arg(&file.path).arg("-o").arg(directory.join(&name)))
    })?;
    Ok(made.join(name))
}

/// A library's text does not change under its path, which holds its version; a program's own directory is read whole, so
/// that a changed header is seen.
fn hash_source(key: &mut CacheKey, file: &SourceFile) -> Result<(), BuildError> {
    key.text(&file.path.display().to_string()).file(&file.path)?;
    let directory = file.path.parent().filter(|_| file.own);
    for header in directory.map_or(Ok(Vec::new()), |directory| files_with_extension(directory, "h"))? {
        key.text(&header.display().to_string()).file(&header)?;
    }
    Ok(())
}

fn archive(objects: &[PathBuf]) -> Result<PathBuf, BuildError> {
    let mut key = CacheKey::new("llvm-ar-22")?;
    objects.iter().for_each(|object| _ = key.text(&object.display().to_string()));
    let made = key.get_or_make(|directory| {
        run_tool(Command::new("llvm-ar-22").arg("rcs").arg(directory.join("libprogram.a")).args(objects))
    })?;
    Ok(made.join("libprogram.a"))
}

/// A Rust crate compiled as a library.
struct RustCrate {
    /// The value of rustc's `--extern`.
    library: PathBuf,
    /// The same under a name that every tool knows for an archive.
    archive: PathBuf,
}

fn rust_crate(source: ProgramSource) -> Result<RustCrate, BuildError> {
    let library = source.locate()?;
    let file = SourceFile {
        path: library.files[0].clone(),
        language: Language::Rust,
        flags: Vec::new(),
        own: false,
    };
    let name = format!("lib{}", source.name());
    let words =
        ["--crate-name", source.name(), "--edition", "2021", "--crate-type", "rlib", "--cap-lints", "allow"]
            .into_iter()
            .chain(["-C", "prefer-dynamic", "-C", "opt-level=2"])
            .map(str::to_owned);
    let made = rustc(&file, &words.collect::<Vec<_>>(), &[], |command, directory| {
        command.arg("-o").arg(directory.join(format!("{name}.rlib")));
    })?;
    let crate_ =
        RustCrate { library: made.join(format!("{name}.rlib")), archive: made.join(format!("{name}.a")) };
    match std::fs::hard_link(&crate_.library, &crate_.archive) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(io(crate_.archive.display())(error))
        }
        _ => Ok(crate_),
    }
}

fn rustc(
    file: &SourceFile,
    words: &[String],
    crates: &[ProgramSource],
    output: impl FnOnce(&mut Command, &Path),
) -> Result<PathBuf, BuildError> {
    let mut key = CacheKey::new("rustc")?;
    words.iter().for_each(|word| _ = key.text(word));
    crates.iter().for_each(|source| _ = key.text(source.name()));
    hash_source(&mut key, file)?;
    key.get_or_make(|directory| {
        let mut command = Command::new("rustc");
        command.args(words).arg(&file.path);
        output(&mut command, directory);
        run_tool(&mut command)
    })
}

fn files_with_extension(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, BuildError> {
    let entries = directory.read_dir().map_err(io(directory.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    Ok(files)
}
