//! The meaning of the command line.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use uruk::OnCall;
use uruk::pipeline::ir::{OptimizationLevel, PartitionPolicy};
use uruk::pipeline::object;
use uruk_kaleidoscope::nearest;

use super::cache::CacheArgs;
use super::examples::{
    CACHE_EXAMPLES, EXAMPLES, HOW, IMAGE_EXAMPLES, KEPT, OPT_EXAMPLES, PAGE_EXAMPLES, PRECOMPILE_EXAMPLES,
    REPL_EXAMPLES, RUN_EXAMPLES, SEEN, TOP_EXAMPLES, TRACE_EXAMPLES, WHAT, WHEN,
};
use super::executor::ExecutorArgs;
use super::helpers::HelperArgs;
use super::image_args::{ImageArgs, ImageCommand};
use super::opt::OptArgs;
use super::page::{DashboardArgs, PageArgs};
use super::perf::PerfArg;
use super::precompile::PrecompileArgs;
use super::record::{StatsArg, TraceArgs};
use super::top::TopArgs;
use super::values::{level, policy, seconds};

/// Compiles, links and runs programs inside one process.
#[derive(Debug, Parser)]
#[command(name = "uruk", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs of the command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile for the process that has started this one.
    #[command(hide = true)]
    CompileHelper,
    /// Run code for the process that has started this one.
    #[command(hide = true)]
    Executor,
    /// Run a program made of IR, bitcode, objects, archives and shared libraries.
    ///
    /// Every FILE takes part, as if it had been given to a linker: its initialisers run before the entry
    /// function, its destructors after, and an undefined symbol in any of them is an error.
    /// One that does nothing by being there is compiled when the program needs a symbol of it, and not otherwise.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Optimize IR as the engine does, and write it: LLVM's pipeline of a level, stage by stage.
    #[command(after_help = OPT_EXAMPLES)]
    Opt(OptArgs),
    /// Try Kaleidoscope, the language of LLVM's tutorial: functions are compiled when they are first called, and defined anew at any time.
    ///
    /// On a terminal it is edited; from a FILE or a pipe each line is done as it is read. `:help` tells the language and the commands.
    #[command(after_help = REPL_EXAMPLES)]
    Repl(ReplArgs),
    /// Compile and link a program ahead, into a file that starts without compiling.
    #[command(after_help = IMAGE_EXAMPLES)]
    Image(ImageArgs),
    /// Compile the functions that traces list into a cache, and run nothing.
    ///
    /// `uruk run` with --lazy, the same files, the same options and the same cache then compiles none of them.
    #[command(after_help = PRECOMPILE_EXAMPLES)]
    Precompile(PrecompileArgs),
    /// Look after a cache of what was compiled: figures, a check of every entry, making room.
    #[command(after_help = CACHE_EXAMPLES)]
    Cache(CacheArgs),
    /// Show a recording on a page in the browser: threads, queues, what waits for what, the critical path of a lookup.
    #[command(after_help = PAGE_EXAMPLES)]
    Page(PageArgs),
    /// Show a recording in the terminal: threads, queues, units by their work. `q` ends it.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Print what a recording says: its notes, the work by unit, the critical path of the slowest lookup.
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceArgs),
}

/// The piece that `--lazy` compiles at a time.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LazyArg {
    /// The function that is called.
    Function,
    /// The module that it is in.
    Module,
}

impl From<LazyArg> for OnCall {
    fn from(argument: LazyArg) -> Self {
        match argument {
            LazyArg::Function => Self::Function,
            LazyArg::Module => Self::Module,
        }
    }
}

/// `uruk repl`.
#[derive(Debug, Args)]
pub(crate) struct ReplArgs {
    /// A program, which is done up to its first mistake; exit code 1 if there is one. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Optimization level, of the passes and of code generation: 0 answers soonest, 2 and 3 run fastest.
    #[arg(short = 'O', value_name = "0|1|2|3|s|z", default_value = "0", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,
}

/// `uruk run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// .ll .bc .o .a .rlib .so .uim, and .c .cc .cpp .cxx where clang is found; one unit a file. `-` is standard input.
    ///
    /// A file whose first line begins with `#!` is a script: what stands behind it are the program's arguments.
    #[arg(value_name = "FILE", required_unless_present_any = ["args", "image"])]
    pub(crate) files: Vec<PathBuf>,

    /// Run with this image, before the FILEs. Repeatable; an image is named behind those that it was built on.
    #[arg(long, value_name = "FILE.uim", action = ArgAction::Append)]
    pub(crate) image: Vec<PathBuf>,

    /// The program's argv behind its name.
    ///
    /// Without a FILE before the `--`, files whose names begin with a dash stand there, and ARGS behind another `--`.
    #[arg(value_name = "ARGS", last = true)]
    pub(crate) args: Vec<OsString>,

    /// The language of standard input, if it is a source.
    #[arg(help_heading = WHAT, short = 'x', value_name = "c|c++", value_parser = ["c", "c++"])]
    pub(crate) language: Option<String>,

    /// The function to call, as `int entry(int argc, char **argv, char **envp)`.
    #[arg(help_heading = WHAT, long, value_name = "NAME", default_value = "main")]
    pub(crate) entry: String,

    /// How many threads compile and link [default: the number of cores].
    #[arg(help_heading = HOW, short = 'j', long = "jobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// Optimization level, of the passes and of code generation: fast code (1, 2, 3), small code (s, z), or neither (0).
    #[arg(help_heading = HOW, short = 'O', value_name = "0|1|2|3|s|z", default_value = "2", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,

    /// Which IR passes run: those of the level, none, or a pass pipeline in LLVM's own syntax.
    #[arg(help_heading = HOW, long, value_name = "default|none|STRING", default_value = "default")]
    pub(crate) passes: String,

    /// Compile each function when it is first called, on the thread that calls it: by itself, or with the whole module that it is in.
    ///
    /// The program starts sooner, and what is never called is never compiled. By itself, without inlining between functions, a function
    /// runs more slowly. One that cannot be compiled ends the program when it is called. Undefined symbols are refused at start, as ever.
    /// An object, or a member of an archive, is linked when one of its functions is called, unless it does something at start.
    #[arg(
        help_heading = WHEN,
        long,
        group = "on_call",
        value_name = "function|module",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "function",
        conflicts_with_all = ["partition", "parts"],
    )]
    pub(crate) lazy: Option<LazyArg>,

    /// Compile each function when it is first called, without optimizing it; and again in the background, at the level of -O, if it is
    /// called often.
    ///
    /// The program starts as soon as with -O0 --lazy, and soon runs nearly as fast as with -O2. Short functions with
    /// loops in loops are optimized at once. Work in the background ends when the program's first thread ends.
    #[arg(help_heading = WHEN, long, group = "on_call", conflicts_with_all = ["lazy", "partition", "parts"])]
    pub(crate) tiered: bool,

    /// After how many calls a function is compiled again.
    #[arg(help_heading = WHEN, long, value_name = "N", default_value = "30", requires = "tiered", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tier_threshold: u32,

    /// For how many milliseconds no function may have been called for the first time before one is compiled again.
    #[arg(help_heading = WHEN, long, value_name = "MS", default_value = "100", requires = "tiered")]
    pub(crate) tier_delay: u32,

    /// When the program ends by `exit`, write the functions that were called to FILE, in the order of their first calls.
    ///
    /// One a line: the file's last name, a tab and the function's name.
    #[arg(help_heading = WHEN, long, value_name = "FILE", requires = "on_call")]
    pub(crate) record_order: Option<PathBuf>,

    /// Add the functions that are compiled to FILE when they are called, for `uruk precompile`: a line each.
    ///
    /// Several programs may add to one FILE, and children of a program do. The line is there as soon as the function is, also if the program
    /// is killed. Several files are one after `sort -u`. So does URUK_TRACE_COMPILE=FILE in the environment, for programs that are run with
    /// --lazy or --tiered.
    #[arg(help_heading = WHEN, long, value_name = "FILE", requires = "on_call")]
    pub(crate) trace_compile: Option<PathBuf>,

    /// Compile the functions that FILE lists, as --record-order or --trace-compile writes it, in the background before they are called.
    ///
    /// The program is faster only where another core is idle. Functions in FILE that no file has are passed over, and --stats counts them.
    #[arg(help_heading = WHEN, long, value_name = "FILE", requires = "on_call")]
    pub(crate) speculate: Option<PathBuf>,

    /// Compile the functions that a called one refers to, in the background before they are called.
    #[arg(help_heading = WHEN, long, requires = "on_call")]
    pub(crate) speculate_callees: bool,

    /// How large modules are divided, to be compiled on several threads: not at all; once functions are inlined; or before, which is
    /// faster, and code may be slower.
    #[arg(help_heading = HOW, long, value_name = "whole|late|early", default_value = "whole", value_parser = policy)]
    pub(crate) partition: PartitionPolicy,

    /// Into how many parts modules are divided, of any size [default: one a thread, of large modules only].
    #[arg(help_heading = HOW, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) parts: Option<u16>,

    #[command(flatten)]
    pub(crate) helpers: HelperArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,

    /// Find what was compiled before in this directory, and store what is compiled [default: what URUK_CACHE says in the environment].
    ///
    /// It is made if it is not there, for this user alone. Objects of one compiler, processor, level and source are found again.
    #[arg(help_heading = KEPT, long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// What may be done with the cache.
    #[arg(help_heading = KEPT, long, value_name = "MODE", value_enum)]
    pub(crate) cache_mode: Option<CacheModeArg>,

    /// Load a shared library before the program and search it for symbols. Repeatable.
    #[arg(help_heading = WHAT, long, value_name = "LIB", action = ArgAction::Append)]
    pub(crate) load: Vec<PathBuf>,

    /// Compile this unit of a package from its source, though the package has it. Repeatable.
    #[arg(help_heading = WHAT, long, value_name = "UNIT", action = ArgAction::Append)]
    pub(crate) no_image: Vec<String>,

    /// Link what defines SYMBOL, though nothing refers to it: a member of an archive, for example. Repeatable.
    #[arg(help_heading = WHAT, short, long, value_name = "SYMBOL", action = ArgAction::Append)]
    pub(crate) undefined: Vec<String>,

    /// Write a trace of every stage on every worker, for Perfetto or chrome://tracing.
    #[arg(help_heading = SEEN, long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Record what happens in FILE, for `uruk trace`, `uruk page` and `uruk top`: while the program runs, and however it ends.
    ///
    /// An older recording there is replaced, and no other file.
    #[arg(help_heading = SEEN, long, value_name = "FILE", conflicts_with = "dashboard")]
    pub(crate) record: Option<PathBuf>,

    /// Keep no flight recorder.
    ///
    /// Without this option the last notes of each thread are in a file of this user's, in $XDG_RUNTIME_DIR/uruk or /dev/shm/uruk-UID: `uruk top
    /// PID` shows them while the program runs, and `uruk trace dump PID` after a crash or a kill too. A program that ends by `exit` leaves no
    /// file. URUK_FLIGHT_RECORDER=0 in the environment does the same as this option.
    #[arg(help_heading = SEEN, long, conflicts_with = "record")]
    pub(crate) no_flight_recorder: bool,

    /// When the program ends, print what was materialized, how long each stage took, and resident bytes.
    ///
    /// The same as one object of JSON in a line of stderr that begins with `{` (--stats=json), for programs. Or a table by unit
    /// (--stats=units); or the critical path of the slowest lookup (--stats=path): which units held it up. These two are printed at `exit`, and
    /// not when a signal ends the program: --record FILE is whole then too.
    #[arg(help_heading = SEEN, long, value_name = "stages|json|units|path", num_args = 0..=1, require_equals = true, value_enum, default_missing_value = "stages")]
    pub(crate) stats: Option<StatsArg>,

    /// When a lookup takes longer than SECS, of the program's start or of a first call, say on stderr what it waits for; and again each time it
    /// has taken twice as long.
    #[arg(help_heading = SEEN, long, value_name = "SECS", value_parser = seconds)]
    pub(crate) why_after: Option<Duration>,

    /// Write everything that is compiled to DIR: IR as it came (.in.ll) and optimized (.opt.ll), assembly (.s), the object (.o).
    ///
    /// Files are named after the unit and the level, with a number for each compilation: 0007-hello.c_square.O2.s. DIR is made if it is not
    /// there. No cache is asked, so that everything is compiled. With --tiered a function has files of each level that it was compiled at.
    #[arg(help_heading = SEEN, long, value_name = "DIR", conflicts_with_all = ["cache", "cache_mode"])]
    pub(crate) dump: Option<PathBuf>,

    /// When a fault or an abort ends the program, print the frames of its thread by name; so does --stats.
    ///
    /// The program then ends by the signal, as ever. Names are as in the object, without lines of sources. So does URUK_BACKTRACE=1 in the
    /// environment.
    #[arg(help_heading = SEEN, long)]
    pub(crate) backtrace: bool,

    /// Have gdb know the program: functions, lines, variables and frames. C and C++ files are compiled with -g.
    ///
    /// So does URUK_DEBUGGER=1 in the environment. Use -O0 to see every variable. With --lazy, modules are compiled as a whole. With --tiered,
    /// break at functions: gdb moves a breakpoint on a line that it does not know yet.
    #[arg(help_heading = SEEN, long)]
    pub(crate) debugger: bool,

    /// Have perf know the program: names of functions (map), or code and lines too (jitdump).
    ///
    /// So does URUK_PERF in the environment. The map is /tmp/perf-PID.map; the dump is jit-PID.dump in the current directory, or in the one
    /// that JITDUMPDIR names.
    #[arg(help_heading = SEEN, long, value_name = "map|jitdump", value_enum)]
    pub(crate) perf: Option<PerfArg>,

    #[command(flatten)]
    pub(crate) dashboard: DashboardArgs,

    /// Say on stderr what happens. Twice: every state a symbol goes through.
    #[arg(help_heading = SEEN, short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// `--cache-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheModeArg {
    /// What is missing is compiled and stored; the default.
    ReadWrite,
    /// What is missing is compiled.
    ReadOnly,
    /// What is missing is an error: nothing is compiled.
    RequireHit,
}

impl Cli {
    /// Reads the command line. The parser prints mistakes and help.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let line = run_what_is_a_file(std::env::args_os().collect());
        let mut cli = Self::try_parse_from(end_files_at_script(line)).map_err(with_the_nearest_verb)?;
        if let Command::Run(run) | Command::Image(ImageArgs { command: ImageCommand::Run(run) }) =
            &mut cli.command
        {
            run.take_files_behind_dashes();
            run.take_images();
        }
        Ok(cli)
    }
}

impl RunArgs {
    /// Whether something is compiled before it is called.
    pub(crate) fn compiles_ahead(&self) -> bool {
        self.speculate.is_some() || self.speculate_callees
    }

    /// Whether every note is wanted, and not the last ones alone.
    pub(crate) fn wants_all_notes(&self) -> bool {
        self.stats.is_some() || self.trace.is_some() || self.dashboard.dashboard.is_some()
    }

    /// Whether sources are compiled with their lines.
    pub(crate) fn wants_lines(&self) -> bool {
        self.debugger || self.perf == Some(PerfArg::Jitdump)
    }

    fn take_files_behind_dashes(&mut self) {
        if self.files.is_empty() && self.image.is_empty() {
            let count = self.args.iter().position(|argument| argument == "--");
            let rest = count.map_or(Vec::new(), |at| self.args.split_off(at));
            self.files = std::mem::take(&mut self.args).into_iter().map(PathBuf::from).collect();
            self.args = rest.into_iter().skip(1).collect();
        }
    }

    /// Puts the images before the files.
    fn take_images(&mut self) {
        self.files.splice(0..0, self.image.drain(..));
    }
}

/// Puts the verb before a file that stands where the verb should: `uruk hello.c` can only mean that.
fn run_what_is_a_file(mut line: Vec<OsString>) -> Vec<OsString> {
    let is_file = |word: &OsString| {
        let bytes = word.as_encoded_bytes();
        // A verb has no such letter. What has one and is not there is told to be missing, and not to be no verb.
        let is_path = !bytes.starts_with(b"-") && bytes.iter().any(|byte| matches!(byte, b'.' | b'/'));
        word == "-" || is_path
    };
    let options = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-") && **word != "-";
    let is_question = |word: &OsString| ["-h", "--help", "-V", "--version"].iter().any(|asks| word == asks);
    let begins_with_option = line.get(1).as_ref().is_some_and(options) && !is_question(&line[1]);
    let is_verb = |word: &OsString| verbs().iter().any(|verb| **word == **verb);
    let words = || line.iter().skip(1).take_while(|word| *word != "--");
    // Options of `run` may stand before the file as well: `uruk -O0 hello.c`.
    let has_file = || !words().any(is_verb) && words().any(is_file);
    if line.get(1).is_some_and(is_file) || (begins_with_option && has_file()) {
        line.insert(1, "run".into());
    }
    line
}

fn verbs() -> Vec<String> {
    let verbs = Cli::command();
    let verbs = verbs.get_subcommands().map(|verb| verb.get_name().to_owned());
    verbs.chain(["help".to_owned()]).collect()
}

/// Names the verb that was probably meant, where the parser finds none that is near enough.
fn with_the_nearest_verb(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let verbs = verbs();
    if let Some(meant) = nearest(word, verbs.iter().map(String::as_str))
        && error.get(ContextKind::SuggestedSubcommand).is_none()
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant.to_owned()]));
    }
    error
}

/// Puts a `--` behind a script: the system adds the arguments of a script behind the name of the file.
fn end_files_at_script(mut line: Vec<OsString>) -> Vec<OsString> {
    let is_script = |path: &OsString| {
        let mut beginning = [0; 2];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
        read.is_ok() && object::is_script(&beginning)
    };
    let files = line.iter().skip(2).take_while(|argument| *argument != "--");
    let script = files.take(LOOKED_AT_MAX).position(|argument| {
        let is_option = argument.as_encoded_bytes().starts_with(b"-");
        !is_option && std::fs::metadata(argument).is_ok_and(|file| file.is_file()) && is_script(argument)
    });
    if let Some(script) = script {
        line.insert(2 + script + 1, "--".into());
    }
    line
}

/// A script is the first file, behind the words of its first line. The system reads 256 bytes of that, in which there are no more
/// words than this; a list of more files is written by hand, and need not have each of them opened.
const LOOKED_AT_MAX: usize = 256 / 2;
