//! Runs a program in every variant and compares each with the native executable.
//!
//! The default matrix gives each form and each of `-O0`, `-O2`, `-j1`, `-j2` its turn, in the combinations that differ
//! most, so that the suite stays within minutes on two cores:
//!
//! | form | run with | what it is for |
//! |---|---|---|
//! | bitcode-O0 | `-O0 -j2` | unoptimized code: every variable in memory, every call out of line |
//! | bitcode-O2 | `-O2 -j1` | the whole optimizer in the engine, in place |
//! | pic | `-j2` | objects alone, linked concurrently |
//! | pie | `-j1` | objects as compilers emit them by default |
//! | fixed | `-j2` | addresses in 32 bits, entries of functions, copies of variables |
//! | large | `-j2` | 64-bit relocations |
//! | archive | `-j1` | members on demand |
//! | mixed | `-O2 -j2` | identity across the border between bitcode and objects; programs of several files |
//! | bitcode-O2 | `-O2 -j2 --partition late` | modules in parts, divided behind the inliner |
//! | bitcode-O0 | `-O2 -j2 --partition early` | modules in parts, divided before all passes |
//! | bitcode-O0 | `-O0 -j2 --lazy` | functions, each when it is called |
//! | bitcode-O2 | `-O2 -j1 --lazy` | the same, optimized by themselves |
//! | bitcode-O0 | `-O0 -j2 --lazy --speculate-callees` | the same, with what a called function may call compiled beside the program |
//! | bitcode-O0 | `-O2 -j2 --tiered` | the same, replaced by better ones at the second call, while the program runs |
//! | pic | `uruk image build -O2`, then `uruk image run` | everything linked ahead, at another address |
//! | bitcode-O2 | `uruk image build -O2`, then `uruk image run` | the same, each function with a version for another processor |
//! | bitcode-O0 | `uruk image build --package -O2`, then `uruk image run` | the same, each file a unit that is mapped when it is needed |
//!
//! Of the five forms of objects alone (pic, pie, fixed, large, archive), a program in C++ or Rust takes two, by its name: their
//! objects take long to compile, and what differs between the forms is not of the language.
//!
//! Each program runs in another process too, in two of these variants by its name, and from an image in one more:
//!
//! | place | forms | without |
//! |---|---|---|
//! | `--executor` | both bitcodes, pic, pie, large, archive, mixed; bitcode with `--lazy` and `--tiered` | fixed: an executor has no code below 2 GiB |
//! | `uruk image build`, and with `--package` | large, mixed, pic, pie, archive, bitcode-O0 | fixed: an image has no fixed place; objects of Rust: they reach thread-local variables of its library at a fixed distance |
//!
//! A few programs are run with `--lazy=module`, and objects with `--lazy`, besides (`programs_lazy_files.rs`).
//!
//! `URUK_FULL_MATRIX=1` runs every form at both levels and both job counts, and adds textual IR and, for programs whose
//! files need no flags, the sources. `URUK_VARIANTS=lazy` runs those alone that have
//! this in their names. `URUK_APART=executor` runs the variants that can be had there in another process, `URUK_APART=helpers` has helpers compile them.
//! `URUK_NATIVE_ONLY=1` checks the native executables against the expectations and runs
//! nothing else: that is for the author of a program.
//!
//! A run is right if it ends as the native one, with the same bytes on standard output and standard error.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{BuildError, io, run_tool};
use crate::forms::{Form, rust_std};
use crate::process::{End, Outcome, run};
use crate::program::{Language, Program};
use crate::uruk::uruk;

/// One way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// How its files are compiled.
    pub form: Form,
    /// The engine's optimization level.
    pub level: u8,
    /// The engine's threads.
    pub jobs: u8,
    /// The piece that the engine compiles at a time.
    pub compiles: Compiles,
}

/// The piece that the engine compiles at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiles {
    /// Modules.
    Whole,
    /// Modules, in processes of their own.
    InHelpers,
    /// Modules; another process runs the code.
    Executor,
    /// Functions, when they are called in another process.
    ExecutorLazy,
    /// The same, and again at their second call there.
    ExecutorTiered,
    /// Modules, in three parts behind the inliner.
    Late,
    /// Modules, in three parts.
    Early,
    /// Functions, when they are called; of objects, whole files.
    Lazy,
    /// Modules, when a function of theirs is called.
    LazyModule,
    /// Functions, when they are called, and what they may call in the background.
    Ahead,
    /// Functions, when they are called, and again at their second call.
    Tiered,
    /// Everything ahead, into an image, which is run.
    Image,
    /// The same, into an image of units.
    Package,
}

/// The name in `skip` of all variants in which functions are compiled when they are called.
const LAZY: &str = "lazy";
/// The name in `skip` of the variants that run an image.
const IMAGE: &str = "image";
/// The name in `skip` of the variant that runs an image of units.
const PACKAGE: &str = "package";

/// The name in `skip` of all variants that another process runs.
const EXECUTOR: &str = "executor";

/// The name in `skip` of those of them in which functions are compiled when they are called.
const EXECUTOR_LAZY: &str = "executor-lazy";

/// The name in `skip` of versions for other processors, which an image of bitcode has besides.
const VERSIONS: &str = "versions";

impl Compiles {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Whole | Self::Image | Self::Package => &[],
            Self::InHelpers => &["--compile-in-helpers=2"],
            Self::Executor => &["--executor"],
            Self::ExecutorLazy => &["--executor", "--lazy"],
            Self::ExecutorTiered => &["--executor", "--tiered", "--tier-threshold=2", "--tier-delay=0"],
            Self::Late => &["--partition=late", "--parts=3"],
            Self::Early => &["--partition=early", "--parts=3"],
            Self::Lazy => &["--lazy"],
            Self::LazyModule => &["--lazy=module"],
            Self::Ahead => &["--lazy", "--speculate-callees"],
            Self::Tiered => &["--tiered", "--tier-threshold=2", "--tier-delay=0"],
        }
    }
}

/// Those that can be had in another place, there. Code that is at a fixed place in an executable is none of an executor's, and helpers compile
/// modules.
fn apart(variants: &[Variant], place: &str) -> Vec<Variant> {
    let there = |variant: &Variant| {
        let is_ir = variant.form.is_ir();
        let compiles = match (place, variant.compiles) {
            ("executor", _) if variant.form == Form::Fixed => return None,
            ("executor", Compiles::Whole) => Compiles::Executor,
            ("executor", Compiles::Lazy) => Compiles::ExecutorLazy,
            ("executor", Compiles::Tiered) => Compiles::ExecutorTiered,
            ("helpers", Compiles::Whole) if is_ir => Compiles::InHelpers,
            ("executor" | "helpers", _) => return None,
            _ => panic!("URUK_APART is executor or helpers, not {place}"),
        };
        Some(Variant { compiles, ..*variant })
    };
    variants.iter().filter_map(there).collect()
}

const DEFAULT: [Variant; 17] = [
    Variant { form: Form::BitcodeO0, level: 0, jobs: 2, compiles: Compiles::Whole },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 1, compiles: Compiles::Whole },
    Variant { form: Form::Pic, level: 2, jobs: 2, compiles: Compiles::Whole },
    Variant { form: Form::Pie, level: 2, jobs: 1, compiles: Compiles::Whole },
    Variant { form: Form::Fixed, level: 2, jobs: 2, compiles: Compiles::Whole },
    Variant { form: Form::Large, level: 2, jobs: 2, compiles: Compiles::Whole },
    Variant { form: Form::Archive, level: 2, jobs: 1, compiles: Compiles::Whole },
    Variant { form: Form::Mixed, level: 2, jobs: 2, compiles: Compiles::Whole },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 2, compiles: Compiles::Late },
    Variant { form: Form::BitcodeO0, level: 2, jobs: 2, compiles: Compiles::Early },
    Variant { form: Form::BitcodeO0, level: 0, jobs: 2, compiles: Compiles::Lazy },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 1, compiles: Compiles::Lazy },
    Variant { form: Form::BitcodeO0, level: 0, jobs: 2, compiles: Compiles::Ahead },
    Variant { form: Form::BitcodeO0, level: 2, jobs: 2, compiles: Compiles::Tiered },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 2, compiles: Compiles::Image },
    Variant { form: Form::Pic, level: 2, jobs: 1, compiles: Compiles::Image },
    Variant { form: Form::BitcodeO0, level: 2, jobs: 2, compiles: Compiles::Package },
];

/// Variants in another process. A program takes two of them in turn.
const IN_EXECUTORS: [Variant; 10] = [
    Variant { form: Form::BitcodeO0, level: 0, jobs: 2, compiles: Compiles::Executor },
    Variant { form: Form::Pic, level: 2, jobs: 2, compiles: Compiles::Executor },
    Variant { form: Form::BitcodeO0, level: 2, jobs: 1, compiles: Compiles::ExecutorLazy },
    Variant { form: Form::Archive, level: 2, jobs: 2, compiles: Compiles::Executor },
    Variant { form: Form::BitcodeO0, level: 2, jobs: 2, compiles: Compiles::ExecutorTiered },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 1, compiles: Compiles::Executor },
    Variant { form: Form::Pie, level: 2, jobs: 1, compiles: Compiles::Executor },
    Variant { form: Form::BitcodeO2, level: 2, jobs: 2, compiles: Compiles::ExecutorLazy },
    Variant { form: Form::Large, level: 2, jobs: 1, compiles: Compiles::Executor },
    Variant { form: Form::Mixed, level: 2, jobs: 2, compiles: Compiles::Executor },
];

/// Further variants from images. A program takes one of them in turn.
const FROM_IMAGES: [Variant; 8] = [
    Variant { form: Form::Pie, level: 2, jobs: 2, compiles: Compiles::Image },
    Variant { form: Form::Archive, level: 2, jobs: 1, compiles: Compiles::Image },
    Variant { form: Form::Pie, level: 2, jobs: 1, compiles: Compiles::Package },
    Variant { form: Form::Large, level: 2, jobs: 1, compiles: Compiles::Image },
    Variant { form: Form::Pic, level: 2, jobs: 2, compiles: Compiles::Package },
    Variant { form: Form::BitcodeO0, level: 0, jobs: 1, compiles: Compiles::Image },
    Variant { form: Form::Large, level: 2, jobs: 2, compiles: Compiles::Package },
    Variant { form: Form::Mixed, level: 2, jobs: 2, compiles: Compiles::Image },
];

/// Files that are compiled or linked when a function of theirs is called. Most programs have one file, so this is not for all.
const LAZY_FILES: [Variant; 6] = [
    Variant { form: Form::BitcodeO0, level: 2, jobs: 1, compiles: Compiles::LazyModule },
    Variant { form: Form::Mixed, level: 2, jobs: 1, compiles: Compiles::LazyModule },
    Variant { form: Form::Pic, level: 2, jobs: 1, compiles: Compiles::Lazy },
    Variant { form: Form::Fixed, level: 2, jobs: 1, compiles: Compiles::Lazy },
    Variant { form: Form::Large, level: 2, jobs: 1, compiles: Compiles::Lazy },
    Variant { form: Form::Archive, level: 2, jobs: 1, compiles: Compiles::Lazy },
];

impl Program {
    /// Checks the program in the whole matrix.
    ///
    /// # Panics
    /// With a report of every variant that is wrong.
    pub fn check(&self) {
        self.check_variants(&self.variants());
    }

    /// Checks the program in the forms that `wanted` takes, for programs so large that they are several tests.
    ///
    /// # Panics
    /// With a report of every variant that is wrong.
    pub fn check_forms(&self, wanted: impl Fn(Form) -> bool) {
        // Their bitcode takes long to compile, and is compiled in enough ways.
        let is_in_turn = |variant: &Variant| IN_EXECUTORS.contains(variant) || FROM_IMAGES.contains(variant);
        let is_too_long = |variant: &Variant| is_in_turn(variant) && variant.form.is_ir();
        let variants = self.variants().into_iter();
        let variants: Vec<_> =
            variants.filter(|variant| wanted(variant.form) && !is_too_long(variant)).collect();
        self.check_variants(&variants);
    }

    /// Checks the program with files that are compiled or linked when they are called.
    ///
    /// # Panics
    /// With a report of every variant that is wrong.
    pub fn check_lazy_files(&self) {
        let variants: Vec<_> = LAZY_FILES.into_iter().filter(|variant| self.can_be(variant.form)).collect();
        self.check_variants(&variants);
    }

    /// Checks the program in `variants` alone, whether the matrix holds them or not.
    ///
    /// # Panics
    /// With a report of every variant that is wrong.
    pub fn check_variants(&self, variants: &[Variant]) {
        let mut failures = String::new();
        let mut natives = Natives::default();
        for &variant in variants {
            match self.check_variant(variant, &mut natives) {
                Ok(None) => {}
                Ok(Some(wrong)) => {
                    _ = write!(failures, "\n== {} {variant} ==\n{}", self.name, wrong.text);
                    if wrong.hung {
                        // Each of the rest might take as long.
                        failures.push_str("the remaining variants were not run\n");
                        break;
                    }
                }
                Err(error) => _ = write!(failures, "\n== {} {variant}: not built ==\n{error}\n", self.name),
            }
        }
        assert!(failures.is_empty(), "{failures}");
    }

    /// The variants of the matrix in force that this program can be had in.
    pub fn variants(&self) -> Vec<Variant> {
        let full = std::env::var_os("URUK_FULL_MATRIX").is_some_and(|value| value == "1");
        let all = if full { full_matrix() } else { DEFAULT.to_vec() };
        let all = std::env::var("URUK_APART").map_or(all.clone(), |place| apart(&all, &place));
        for (name, _) in &self.skipped {
            let is_known = Form::by_name(name).is_some()
                || [LAZY, IMAGE, PACKAGE, EXECUTOR, EXECUTOR_LAZY, VERSIONS].contains(&&**name);
            assert!(is_known, "{}: `skip {name}` names no form", self.name);
        }
        let wanted = std::env::var("URUK_VARIANTS").unwrap_or_default();
        let is_wanted = |variant: &Variant| variant.to_string().contains(&wanted);
        let is_skipped = |variant: &Variant| {
            let kinds: &[&str] = match variant.compiles {
                Compiles::Lazy | Compiles::LazyModule | Compiles::Ahead | Compiles::Tiered => &[LAZY],
                Compiles::ExecutorLazy | Compiles::ExecutorTiered => &[LAZY, EXECUTOR, EXECUTOR_LAZY],
                Compiles::Image => &[IMAGE],
                Compiles::Package => &[IMAGE, PACKAGE],
                Compiles::Executor => &[EXECUTOR],
                Compiles::Whole | Compiles::InHelpers | Compiles::Late | Compiles::Early => return false,
            };
            self.skipped.iter().any(|(name, _)| kinds.contains(&&**name))
        };
        let can_be = |variant: &Variant| self.can_be(variant.form) && !is_skipped(variant);
        let mut variants = all;
        variants.retain(|variant| can_be(variant) && (full || self.takes_in_turn(variant.form)));
        let is_rust = self.files.iter().any(|file| file.language == Language::Rust);
        let is_image = |variant: &Variant| matches!(variant.compiles, Compiles::Image | Compiles::Package);
        // Its objects reach thread-local variables of its library as those of the executable.
        let can_be =
            |variant: &Variant| can_be(variant) && !(is_rust && is_image(variant) && !variant.form.is_ir());
        if std::env::var_os("URUK_APART").is_none() {
            for (turns, each) in [(&IN_EXECUTORS[..], 2), (&FROM_IMAGES[..], 1)] {
                let first = self.turn() % turns.len();
                let in_turn = turns.iter().cycle().skip(first).take(turns.len()).copied().filter(&can_be);
                variants.extend(in_turn.take(if full { turns.len() } else { each }));
            }
        }
        variants.retain(is_wanted);
        variants
    }

    /// A number of the program, by which it has its turn.
    fn turn(&self) -> usize {
        self.name.bytes().map(usize::from).sum()
    }

    /// Whether it is this program's turn to be had in `form`.
    fn takes_in_turn(&self, form: Form) -> bool {
        const IN_TURN: [Form; 5] = [Form::Pic, Form::Pie, Form::Fixed, Form::Large, Form::Archive];
        const EACH: usize = 2;
        let Some(place) = IN_TURN.iter().position(|other| *other == form) else { return true };
        let first = self.turn();
        let is_c = self.files.iter().all(|file| file.language == Language::C);
        is_c || (place + IN_TURN.len() - first % IN_TURN.len()) % IN_TURN.len() < EACH
    }

    fn can_be(&self, form: Form) -> bool {
        let skipped = self.skipped.iter().any(|(name, _)| name == form.name());
        let rust = self.files.iter().any(|file| file.language == Language::Rust);
        let plain = self.files.iter().all(|file| file.own && file.flags.is_empty());
        !skipped
            && match form {
                Form::Mixed => self.files.len() > 1,
                Form::Source => plain && !rust,
                Form::Text => self.files.iter().all(|file| file.own),
                _ => true,
            }
    }

    /// Runs one variant; `Some` is what is wrong with it.
    fn check_variant(&self, variant: Variant, natives: &mut Natives) -> Result<Option<Wrong>, BuildError> {
        let executable = self.build_native(variant.form)?;
        let (native, known) = natives.run(self, executable)?;
        if let Some(wrong) = self.against_expectations(native, variant.form) {
            let text = format!("the native program itself is wrong: {wrong}");
            return Ok((!known).then_some(Wrong { text, hung: native.end == End::TimedOut }));
        }
        if std::env::var_os("URUK_NATIVE_ONLY").is_some_and(|value| value == "1") {
            return self.build(variant.form).map(|_| None);
        }
        let files = self.build(variant.form)?;
        let outcome = self.run_in_engine(variant, &files, &[])?;
        let outcome = match variant.compiles {
            Compiles::Executor | Compiles::ExecutorLazy | Compiles::ExecutorTiered => without_report(outcome),
            _ => outcome,
        };
        let wrong = self.difference(native, &outcome);
        Ok(wrong.map(|text| Wrong { text, hung: outcome.end == End::TimedOut }))
    }

    /// Checks the program twice with a cache in `directory`. The second start has all that the first one compiled, unless functions are
    /// compiled while the program runs.
    ///
    /// # Panics
    /// With a report, if one of the starts does something else than the native program.
    pub fn check_cached(&self, variant: Variant, directory: &Path) {
        let wrong = self.check_starts(variant, directory);
        let wrong = wrong.unwrap_or_else(|error| Some(format!("not built: {error}")));
        assert!(wrong.is_none(), "\n== {} {variant} ==\n{}", self.name, wrong.unwrap_or_default());
    }

    fn check_starts(&self, variant: Variant, directory: &Path) -> Result<Option<String>, BuildError> {
        let mut natives = Natives::default();
        let executable = self.build_native(variant.form)?;
        let (native, _) = natives.run(self, executable)?;
        let files = self.build(variant.form)?;
        let cache = format!("--cache={}", directory.display());
        let second = match variant.compiles {
            Compiles::Whole
            | Compiles::InHelpers
            | Compiles::Executor
            | Compiles::Late
            | Compiles::Early
            | Compiles::Image
            | Compiles::Package => "--cache-mode=require-hit",
            Compiles::Lazy
            | Compiles::LazyModule
            | Compiles::Ahead
            | Compiles::Tiered
            | Compiles::ExecutorLazy
            | Compiles::ExecutorTiered => "--cache-mode=read-write",
        };
        for mode in ["--cache-mode=read-write", second] {
            let outcome = self.run_in_engine(variant, &files, &[&cache, mode])?;
            if let Some(wrong) = self.difference(native, &outcome) {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    fn run_in_engine(
        &self,
        variant: Variant,
        files: &[PathBuf],
        options: &[&str],
    ) -> Result<Outcome, BuildError> {
        let image = match variant.compiles {
            Compiles::Image | Compiles::Package => Some(self.build_image(variant, files)?),
            _ => None,
        };
        let files = image.as_ref().map_or(files, std::slice::from_ref);
        let mut command = Command::new(uruk());
        command.args(image.iter().map(|_| "image"));
        command.arg("run").arg(format!("-O{}", variant.level)).arg(format!("-j{}", variant.jobs));
        command.args(options);
        command.args(variant.compiles.options());
        if let Some(entry) = &self.entry {
            command.args(["--entry", entry]);
        }
        if self.files.iter().any(|file| file.language == Language::Rust) {
            command.arg("--load").arg(rust_std()?);
        }
        command.args(files);
        if !self.args.is_empty() {
            command.arg("--").args(&self.args);
        }
        run(&mut command, &self.input, self.time_limit)
    }

    /// Compiles and links the files into an image, which is made anew each time: the engine is what is tested.
    fn build_image(&self, variant: Variant, files: &[PathBuf]) -> Result<PathBuf, BuildError> {
        let directory = std::env::temp_dir().join(format!("uruk-images-{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(io(directory.display()))?;
        let image = directory.join(format!("{}-{}.uim", self.name.replace('/', "-"), variant.form.name()));
        let mut command = Command::new(uruk());
        command.args(["image", "build"]).arg("-o").arg(&image);
        command.arg(format!("-O{}", variant.level)).arg(format!("-j{}", variant.jobs));
        if self.files.iter().any(|file| file.language == Language::Rust) {
            command.arg("--load").arg(rust_std()?);
        }
        command.args((variant.compiles == Compiles::Package).then_some("--package"));
        let has_versions = !self.skipped.iter().any(|(name, _)| name == VERSIONS);
        if variant.compiles == Compiles::Image && variant.form == Form::BitcodeO2 && has_versions {
            command.args(["--cpu-targets", "x86-64-v2;x86-64-v3,clone_all"]);
        }
        run_tool(command.args(files))?;
        Ok(image)
    }

    /// The objection of the program's own description to `native`.
    fn against_expectations(&self, native: &Outcome, form: Form) -> Option<String> {
        let stdout = String::from_utf8_lossy(&native.stdout);
        let stderr = String::from_utf8_lossy(&native.stderr);
        if native.end != self.end {
            return Some(format!("{}, expected {}\n{}", native.end, self.end, tail(native)));
        }
        // An archive's program may lack members that nothing needs; it is still what the engine is compared with.
        let expected = self.stdout.as_ref().filter(|_| form != Form::Archive);
        if let Some(expected) = expected.filter(|expected| **expected != stdout) {
            return Some(first_difference("stdout", expected.as_bytes(), &native.stdout));
        }
        let missing = self.stderr.iter().find(|&text| !stderr.contains(text.as_str()))?;
        Some(format!("stderr does not contain `{missing}`\n{}", tail(native)))
    }

    fn difference(&self, native: &Outcome, outcome: &Outcome) -> Option<String> {
        let mut wrong = String::new();
        if outcome.end != native.end {
            _ = writeln!(wrong, "{}, natively {}", outcome.end, native.end);
        }
        if outcome.stdout != native.stdout {
            wrong.push_str(&first_difference("stdout", &native.stdout, &outcome.stdout));
        }
        if self.compares_stderr && without_ids(&outcome.stderr) != without_ids(&native.stderr) {
            wrong.push_str(&first_difference("stderr", &native.stderr, &outcome.stderr));
        }
        if wrong.is_empty() {
            return None;
        }
        let environment: String =
            self.input.env.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        Some(format!("{wrong}{}\nto run it again: {environment}{}\n", tail(outcome), outcome.command))
    }
}

/// Without the words of the command, which come last, on a signal that has ended the program's process.
fn without_report(mut outcome: Outcome) -> Outcome {
    const BEGINS: &[u8] = b"error: the executor has gone";
    let is_report = |at: &usize| outcome.stderr[*at..].starts_with(BEGINS);
    if matches!(outcome.end, End::Killed(_))
        && let Some(at) = (0..outcome.stderr.len()).rev().find(is_report)
    {
        outcome.stderr.truncate(at);
    }
    outcome
}

/// The defects of a run.
struct Wrong {
    text: String,
    hung: bool,
}

/// The outcomes of native executables that were run already: most variants are compared with one of them.
#[derive(Default)]
struct Natives(Vec<(PathBuf, Outcome)>);

impl Natives {
    /// The outcome of `executable`, and whether it was known.
    fn run(&mut self, program: &Program, executable: PathBuf) -> Result<(&Outcome, bool), BuildError> {
        let known = self.0.iter().position(|(path, _)| *path == executable);
        let index = match known {
            Some(index) => index,
            None => {
                let mut command = Command::new(&executable);
                command.args(&program.args);
                let outcome = run(&mut command, &program.input, program.time_limit)?;
                self.0.push((executable, outcome));
                self.0.len() - 1
            }
        };
        Ok((&self.0[index].1, known.is_some()))
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -O{} -j{}", self.form.name(), self.level, self.jobs)?;
        match self.compiles {
            Compiles::Image => f.write_str(" image")?,
            Compiles::Package => f.write_str(" package")?,
            _ => {}
        }
        self.compiles.options().iter().try_for_each(|option| write!(f, " {option}"))
    }
}

fn full_matrix() -> Vec<Variant> {
    let bitcode = [Form::BitcodeO0, Form::BitcodeO2, Form::Mixed, Form::Text, Form::Source];
    let objects = [Form::Pic, Form::Pie, Form::Fixed, Form::Large, Form::Archive];
    let mut variants = Vec::new();
    for jobs in [1, 2] {
        for level in [0, 2] {
            variants.extend(bitcode.map(|form| Variant { form, level, jobs, compiles: Compiles::Whole }));
            let other = [
                Compiles::Late,
                Compiles::Early,
                Compiles::Lazy,
                Compiles::Ahead,
                Compiles::Tiered,
                Compiles::Image,
            ];
            let form = Form::BitcodeO2;
            variants.extend(other.map(|compiles| Variant { form, level, jobs, compiles }));
        }
        // Objects are not compiled, so the level changes nothing about them.
        variants.extend(objects.map(|form| Variant { form, level: 2, jobs, compiles: Compiles::Whole }));
    }
    variants
}

/// Standard error with numbers in parentheses left out: Rust's panic message names the thread's number there.
fn without_ids(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut result = String::new();
    let mut parts = text.split('(');
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        result.push('(');
        result.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    result
}

/// The first line in which two outputs differ, with its number.
fn first_difference(name: &str, expected: &[u8], actual: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes).split('\n').map(str::to_owned).collect()
    };
    let (expected, actual) = (lines(expected), lines(actual));
    let same = expected.iter().zip(&actual).take_while(|(expected, actual)| expected == actual).count();
    let line = |lines: &[String]| match lines.get(same) {
        Some(line) => format!("`{}`", shortened(line)),
        None => "nothing more".to_owned(),
    };
    format!("{name} differs in line {}: {}, expected {}\n", same + 1, line(&actual), line(&expected))
}

fn shortened(line: &str) -> String {
    const CHARACTERS_MAX: usize = 900;
    if line.chars().count() <= CHARACTERS_MAX {
        return line.to_owned();
    }
    line.chars().take(CHARACTERS_MAX).chain(" …".chars()).collect()
}

/// The end of what a run printed.
fn tail(outcome: &Outcome) -> String {
    const LINES_MAX: usize = 12;
    let last_lines = |name: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
        shown.iter().map(|line| format!("  {name}| {}\n", shortened(line))).collect::<String>()
    };
    format!(
        "{}{}  after {:.1} s",
        last_lines("out", &outcome.stdout),
        last_lines("err", &outcome.stderr),
        outcome.elapsed.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_numbers_do_not_count_as_a_difference() {
        let one = b"thread 'main' (812) panicked at a.rs:1:2:\nboo (three)";
        let two = b"thread 'main' (9) panicked at a.rs:1:2:\nboo (three)";
        assert_eq!(without_ids(one), without_ids(two));
        assert_ne!(without_ids(b"f(1) g"), without_ids(b"f(1) h"));
    }

    #[test]
    fn the_first_differing_line_is_shown() {
        let text = first_difference("stdout", b"a\nb\nc\n", b"a\nx\nc\n");
        assert_eq!(text, "stdout differs in line 2: `x`, expected `b`\n");
        let text = first_difference("stdout", b"a\nb", b"a");
        assert_eq!(text, "stdout differs in line 2: nothing more, expected `b`\n");
    }

    #[test]
    fn every_form_and_job_count_has_its_turn_by_default() {
        for jobs in [1, 2] {
            assert!(DEFAULT.iter().any(|variant| variant.jobs == jobs && variant.level == 2));
        }
        for variant in full_matrix() {
            let default_only = [Form::Text, Form::Source].contains(&variant.form);
            assert!(default_only || DEFAULT.iter().any(|default| default.form == variant.form), "{variant}");
        }
    }
}
