//! Small programs on Debian's static archives, which were compiled by gcc as distributions do: position-independent for executables
//! alone, with assembly for several processors, tables of dispatch, thread-local constants, and a compiler of their own.
//!
//! A program's head names the packages (`scripts/setup.sh --corpus` installs them all), the archives that it is linked with, and the
//! shared libraries. Each is run from its files and from images, in this process and in another, and compared with the native one.
//! `make soak` runs them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::cache::{BuildError, io, run_tool};
use uruk_tests::process::{Input, Outcome, run};
use uruk_tests::program::{names_in, programs_directory};
use uruk_tests::uruk::uruk;

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// How a program is run from its files.
const FROM_FILES: [&[&str]; 4] = [&[], &["--lazy"], &["--executor"], &["--executor", "--lazy"]];

/// How images of it are built.
const IMAGES: [&[&str]; 2] = [&[], &["--package"]];

/// A program with the archives and libraries that its head names.
struct Linked {
    object: PathBuf,
    archives: Vec<PathBuf>,
    libraries: Vec<String>,
    native: PathBuf,
}

/// The words behind `key` in the head of a program.
fn words(text: &str, key: &str) -> Vec<String> {
    text.lines()
        .map_while(|line| line.strip_prefix("// "))
        .filter_map(|line| line.strip_prefix(key))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

impl Linked {
    fn new(source: &Path, directory: &Path) -> Result<Self, BuildError> {
        let text = fs::read_to_string(source).map_err(io(source.display()))?;
        let archives: Vec<PathBuf> =
            words(&text, "archives:").iter().map(|name| Path::new(LIBRARIES).join(name)).collect();
        let missing = archives.iter().find(|archive| !archive.is_file());
        assert!(missing.is_none(), "{missing:?} is missing: scripts/setup.sh --corpus");
        let libraries = words(&text, "libraries:");
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let object = directory.join(format!("{stem}.o"));
        let native = object.with_extension("native");
        let compiler =
            if source.extension().is_some_and(|extension| extension == "cpp") { "g++" } else { "gcc" };
        // As Debian's compiler has it by default: for an executable at any address.
        run_tool(Command::new(compiler).args(["-O1", "-c"]).arg(source).arg("-o").arg(&object))?;
        let named = libraries.iter().map(|library| format!("-l:{library}"));
        run_tool(Command::new(compiler).arg(&object).args(&archives).args(named).arg("-o").arg(&native))?;
        Ok(Self { object, archives, libraries, native })
    }

    fn files(&self) -> Vec<OsString> {
        let mut files = vec![self.object.clone().into_os_string()];
        files.extend(self.archives.iter().map(|archive| archive.clone().into_os_string()));
        files.extend(self.loads());
        files
    }

    fn loads(&self) -> impl Iterator<Item = OsString> {
        self.libraries.iter().flat_map(|library| ["--load".into(), library.into()])
    }

    /// Differences from the native program, one for each way to run it.
    fn differences(&self) -> Result<Vec<String>, BuildError> {
        let native = ended(&mut Command::new(&self.native))?;
        let (mut found, mut unbuilt) = (Vec::new(), Vec::new());
        let mut compare = |outcome: Outcome| {
            let same = (outcome.end, &outcome.stdout, &outcome.stderr)
                == (native.end, &native.stdout, &native.stderr);
            if !same {
                let stderr = String::from_utf8_lossy(&outcome.stderr);
                let start: String = stderr.chars().take(600).collect();
                found.push(format!(
                    "{}\n  {}, natively {}\n  {start}",
                    outcome.command, outcome.end, native.end
                ));
            }
        };
        for options in FROM_FILES {
            compare(ended(Command::new(uruk()).arg("run").args(options).args(self.files()))?);
        }
        for options in IMAGES {
            let image = self.object.with_extension("uim");
            let mut build = Command::new(uruk());
            build.args(["image", "build"]).args(options).arg("-o").arg(&image).args(self.files());
            if let Err(error) = run_tool(&mut build) {
                unbuilt.push(error.to_string());
                continue;
            }
            compare(ended(Command::new(uruk()).args(["image", "run"]).args(self.loads()).arg(&image))?);
        }
        found.append(&mut unbuilt);
        Ok(found)
    }
}

fn ended(command: &mut Command) -> Result<Outcome, BuildError> {
    run(command, &Input::default(), Duration::from_secs(100))
}

#[test]
#[ignore = "needs what scripts/setup.sh --corpus installs; make soak runs it"]
fn programs_on_archives_of_a_distribution_run_as_natively() {
    let directory = std::env::temp_dir().join(format!("uruk-debian-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for what is built");
    let mut found = Vec::new();
    for name in names_in("debian").expect("the programs are there") {
        let source = ["c", "cpp"]
            .map(|extension| programs_directory().join(&name).with_extension(extension))
            .into_iter()
            .find(|source| source.is_file())
            .expect("a program is a file of C or C++");
        match Linked::new(&source, &directory).and_then(|linked| linked.differences()) {
            Ok(differences) => found.extend(differences),
            Err(error) => found.push(error.to_string()),
        }
    }
    fs::remove_dir_all(&directory).expect("it was made here");
    assert!(found.is_empty(), "{} ways differ:\n{}", found.len(), found.join("\n"));
}
