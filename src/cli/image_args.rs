//! The command line of `uruk image`.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use uruk::pipeline::ir::{OptimizationLevel, PartitionPolicy};

use super::args::RunArgs;
use super::examples::IMAGE_EXAMPLES;
use super::values::{level, policy};

/// `uruk image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// The verb.
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// The verbs of `uruk image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Compile and link files into an image. Nothing of them runs.
    ///
    /// Every FILE takes part, and members of archives if something refers to them. Shared libraries are named again when the image runs.
    #[command(after_help = IMAGE_EXAMPLES)]
    Build(ImageBuildArgs),
    /// Say what is in an image: its size, the processor it is for, what it defines and refers to. Nothing of it is run.
    #[command(after_help = IMAGE_EXAMPLES)]
    Info(ImageInfoArgs),
    /// Check an image: every byte of it, and each unit of a package against the sources that are named. Functions that use more than the processors
    /// have that the image is for are listed. Nothing of it is run.
    #[command(after_help = IMAGE_EXAMPLES)]
    Verify(ImageVerifyArgs),
    /// Run an image, as `uruk run` runs files: with its options, and with more files.
    #[command(after_help = IMAGE_EXAMPLES)]
    Run(Box<RunArgs>),
}

/// `uruk image build`.
#[derive(Debug, Args)]
pub(crate) struct ImageBuildArgs {
    /// .ll .bc .o .a .rlib .so, and .c .cc .cpp .cxx where clang is found. `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The file that the image goes to [default: the first FILE's name with .uim, or as --emit says, in the current directory].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The output: an image; a shared library, which the C compiler links (CC names another one), with the library of C++ if code needs it; or what others link themselves, objects, assembly or
    /// bitcode of the optimized modules. Of several files or parts the last three are an archive, in which these go by their numbers.
    #[arg(
        long,
        value_name = "image|so|o|s|bc",
        value_enum,
        default_value = "image",
        hide_possible_values = true
    )]
    pub(crate) emit: EmitArg,

    /// The language of standard input, if it is a source.
    #[arg(short = 'x', value_name = "c|c++", value_parser = ["c", "c++"])]
    pub(crate) language: Option<String>,

    /// Optimization level, of the passes and of code generation.
    #[arg(short = 'O', value_name = "0|1|2|3|s|z", default_value = "2", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,

    /// The processors that the image is compiled for: those of this level, and of those above. It runs on all that have what its code uses. LLVM IR may ask for less in its functions.
    ///
    /// Several are separated by semicolons: "x86-64-v2;x86-64-v3". Functions of LLVM IR and of sources then have a version for each that makes
    /// them faster, and the best that a processor can run is chosen when the image is loaded. A target is a processor by LLVM's name or `native`;
    /// behind commas, instruction sets to add and to take away (+aes,-fma), and clone_all if every function is to have a version. The order
    /// means nothing: the base is the target whose instruction sets all others have. Packages have one target.
    #[arg(long, alias = "cpu", value_name = "TARGETS", default_value = "x86-64-v2")]
    pub(crate) cpu_targets: String,

    /// Have the image refused by processors that lack what any of its code uses. Otherwise code beyond the targets, which functions ask for by attributes,
    /// and which objects and assembly have, does not count: the program asks the processor before it runs that.
    #[arg(long)]
    pub(crate) needs_all: bool,

    /// Build on this image: what it defines is referred to, and stays in it. It is then named before the new one when that runs. Repeatable; an
    /// image is named behind those that it was built on.
    #[arg(long, value_name = "LOWER.uim", action = ArgAction::Append)]
    pub(crate) on: Vec<PathBuf>,

    /// Lay code out in the order of a trace, or of a file of --record-order: what is called one after the other lies together. Repeatable.
    #[arg(long, value_name = "TRACE", action = ArgAction::Append, conflicts_with = "emit")]
    pub(crate) order: Vec<PathBuf>,

    /// The same, and take the functions of the trace alone, with what they refer to and what runs at start and end. Repeatable.
    #[arg(long, value_name = "TRACE", action = ArgAction::Append, conflicts_with_all = ["order", "emit", "package"])]
    pub(crate) only: Vec<PathBuf>,

    /// How many threads compile and link [default: what URUK_IMAGE_THREADS says in the environment, or half of the cores].
    ///
    /// There are fewer if the memory that this process may have, by its control group or by what is available, is too little for so many.
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// How large modules are divided, as for `uruk run`.
    #[arg(long, value_name = "whole|late|early", default_value = "whole", value_parser = policy)]
    pub(crate) partition: PartitionPolicy,

    /// Into how many parts modules are divided, of any size [default: 16, of large modules only]. The number of threads changes nothing of the image.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) parts: Option<u16>,

    /// Find what was compiled before in this directory, and store what is compiled [default: what URUK_CACHE says in the environment].
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// Load a shared library that the files refer to. Repeatable.
    #[arg(long, value_name = "LIB", action = ArgAction::Append)]
    pub(crate) load: Vec<PathBuf>,

    /// Take what defines SYMBOL, though nothing refers to it: a member of an archive, for example. An image takes `main` in any case. Repeatable.
    #[arg(short, long, value_name = "SYMBOL", action = ArgAction::Append)]
    pub(crate) undefined: Vec<String>,

    /// Make a package: each file is a unit, which is validated when it is first used. When the image runs, files that are named behind it are its
    /// sources: a unit that was compiled from another one is compiled again.
    #[arg(long, conflicts_with = "emit")]
    pub(crate) package: bool,

    /// Print what was compiled, and how long each stage took.
    #[arg(long)]
    pub(crate) stats: bool,
}

/// `--emit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EmitArg {
    Image,
    So,
    O,
    S,
    Bc,
}

impl EmitArg {
    /// The end of the file's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Image => "uim",
            Self::So => "so",
            Self::O => "o",
            Self::S => "s",
            Self::Bc => "bc",
        }
    }
}

/// `uruk image info`.
#[derive(Debug, Args)]
pub(crate) struct ImageInfoArgs {
    /// The image.
    #[arg(value_name = "FILE")]
    pub(crate) image: PathBuf,

    /// List the functions and variables that it defines for others, with sizes.
    #[arg(long)]
    pub(crate) symbols: bool,

    /// List the names that it refers to.
    #[arg(long)]
    pub(crate) imports: bool,

    /// List the files that it was made of.
    #[arg(long)]
    pub(crate) units: bool,

    /// List the processors that it is for, and the instruction sets that the code for each of them uses.
    #[arg(long)]
    pub(crate) targets: bool,

    /// List the sections of the host, with their lengths.
    #[arg(long)]
    pub(crate) sections: bool,

    /// List the units of a package that are not used where these SOURCEs are, and why.
    #[arg(long)]
    pub(crate) rejected: bool,

    #[command(flatten)]
    pub(crate) sources: ImageSources,
}

/// `uruk image verify`.
#[derive(Debug, Args)]
pub(crate) struct ImageVerifyArgs {
    /// The image.
    #[arg(value_name = "FILE")]
    pub(crate) image: PathBuf,

    #[command(flatten)]
    pub(crate) sources: ImageSources,
}

/// Files that a package may have been made of.
#[derive(Debug, Args)]
pub(crate) struct ImageSources {
    /// Files that the image may have been made of: .ll .bc .o, and .c .cc .cpp .cxx where clang is found.
    #[arg(value_name = "SOURCE")]
    pub(crate) files: Vec<PathBuf>,

    /// Optimization level that they are compiled with here.
    #[arg(short = 'O', value_name = "0|1|2|3|s|z", default_value = "2", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,
}
