//! `uruk run`: from files to the program's first instruction, and no further. The program ends the process.

use std::ffi::{CStr, CString, c_int};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk::core::sync::Arc;
use uruk::core::{ExecutorSymbolDef, LookupError, SymbolFlags};
use uruk::pipeline::cache::CacheMode;
use uruk::pipeline::debug::PerfFormat;
use uruk::pipeline::executor::Startup;
use uruk::pipeline::image::ImageFile;
use uruk::pipeline::ir::{DumpError, OptimizationPipeline};
use uruk::pipeline::object::{self, ObjectBuffer, PROFILE_RUNTIME};
use uruk::pipeline::remote::{RemoteError, RemoteProgram};
use uruk::pipeline::runtime::allocation::ReplaceError;
use uruk::pipeline::runtime::exit::{ExitError, on_exit};
use uruk::pipeline::runtime::ifunc;
use uruk::pipeline::runtime::process::{ProcessSymbols, set_program_symbols};
use uruk::pipeline::runtime::startup::{Program, give_back_free_memory};
use uruk::pipeline::runtime::tls;
use uruk::pipeline::tiers::CallCounting;
use uruk::{CacheOptions, Jit, JitBuilder, JitError, OnCall, Scope};

use super::args::{CacheModeArg, RunArgs};
use super::background::{Ahead, Background};
use super::cache;
use super::clang::{self, ClangError, SourceOptions};
use super::dispatcher::RetiringDispatcher;
use super::observe::{Observers, TraceError, dump};
use super::order::{self, OrderError, Recording};
use super::page::{self, Beside, PageError};
use super::record::{self, RecordError, StatsArg};
use super::replaced::take_over_allocation;
use super::values::{cores, partition};
use super::{executor, flight, package, profile, report, verbose, why_after};

/// Why a program did not come to run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Jit(#[from] JitError),
    #[error(transparent)]
    Clang(#[from] ClangError),
    #[error("cannot link the program")]
    Link { source: JitError },
    #[error("no file defines `{entry}`; {}", entry_to_name(near.as_deref()))]
    NoEntry { entry: String, near: Option<String> },
    #[error(
        "cannot take `{}` as a file of the program; if it is an argument, put it behind `--`: uruk run {} -- {0}",
        argument.display(), first.display()
    )]
    Stray { first: PathBuf, argument: PathBuf, source: Box<JitError> },
    #[error("--no-image leaves a unit of a package out, and no package is among the files: {unit}")]
    NoPackage { unit: String },
    #[error("{} has no unit {unit}; `uruk image info --units` lists them", image.display())]
    NoUnit { unit: String, image: PathBuf },
    #[error("cannot read standard input")]
    Input { source: std::io::Error },
    #[error("an argument of the program contains a zero byte")]
    Argument,
    #[error("cannot prepare the end of the program")]
    Exit(#[from] ExitError),
    #[error(transparent)]
    Allocation(#[from] ReplaceError),
    #[error("a program that replaces `malloc` or `operator new` cannot run with --executor")]
    ReplacesAllocation,
    #[error(transparent)]
    Executor(#[from] RemoteError),
    #[error(
        "cannot start the process that compiles for the program; it takes two processes and a few descriptors"
    )]
    NoHost { source: std::io::Error },
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error("--dump needs a directory that may be written to, or that can be made in one that is there")]
    Dump(#[from] DumpError),
    #[error(
        "--cache-mode says what to do with a cache, and none is named: --cache DIR, or URUK_CACHE=DIR in the environment"
    )]
    NoCache,
    #[error(
        "--cache-mode require-hit compiles nothing, and the cache lacks something; run once with --cache-mode read-write and the same options, which stores it"
    )]
    NotCached { source: Box<Self> },
}

impl RunError {
    /// Whether the command line itself is wrong, rather than its files.
    pub(crate) fn is_wrong_usage(&self) -> bool {
        matches!(self, Self::NoCache | Self::NoPackage { .. } | Self::NoUnit { .. })
    }
}

/// Links the files and becomes the program, or has another process run it: the exit code.
pub(crate) fn run(args: &RunArgs) -> Result<c_int, RunError> {
    let arguments = program_arguments(args)?;
    let executor = args.executor.program()?;
    let order = args.speculate.as_deref().map(order::read).transpose()?;
    let ahead = Ahead { order, callees: args.speculate_callees };
    let recording = args.record_order.as_deref().map(Recording::begin).transpose()?;
    flight::begin(args, executor.as_ref().and_then(RemoteProgram::above))?;
    args.stats.map_or(Ok(()), StatsArg::print_at_exit)?;
    page::stay_at_exit(&args.dashboard)?;
    let observers = observe(args)?;
    let dispatcher =
        Arc::new(RetiringDispatcher::new(args.jobs.map_or_else(cores, usize::from)).map_err(JitError::from)?);
    let linked = link(args, executor, &observers, dispatcher.clone());
    // From here on the terminal shows the program's output, or an error.
    observers.leave_terminal();
    let (jit, entry, mut page) = linked?;
    dispatcher.retire();
    page.program_begins();
    store_what_was_compiled(jit, &observers, args)?;
    if let Some(executor) = jit.executor() {
        return executor::run_there(jit, executor, entry, &arguments);
    }
    give_back_free_memory();

    jit.publish_image();
    let program: &'static Program = Box::leak(Box::new(Program::new(arguments))); // needed to the end, as the code is
    program.take_the_process();
    program.register_finalizers()?;
    set_program_symbols(Arc::new(move |name: &CStr| {
        let found = executor::program_symbol(jit, name.to_str().ok()?)?;
        // An archive's member that was not needed so far may have come with it.
        start_what_is_new(jit, program);
        if found.flags.contains(SymbolFlags::THREAD_LOCAL) {
            // SAFETY: that is what the address of such a symbol is, and nothing is ever unmapped.
            return Some(unsafe { tls::address_on_this_thread(found.address) });
        }
        Some(found.address)
    }));
    let background = Background::of(jit);
    background.end_with_the_program(&observers, recording, args.compiles_ahead())?;
    tls::touch_modules();
    program.take_the_processor();
    if take_over_allocation(jit)? {
        background.stop(); // The program's functions may be for the program's own threads.
        page.allocator_is_replaced();
    }
    page.leave();
    background.begin(&ahead);
    start_what_is_new(jit, program);
    // SAFETY: everything it depends on is Ready, and nothing is ever unmapped. The entry is what the user says is a
    // `main`.
    unsafe { program.run_main_and_exit(entry.address) }
}

/// Runs the constructors of what has been linked and not been started yet, and notes its destructors.
fn start_what_is_new(jit: &Jit, program: &Program) {
    let Startup { indirect, initializers, finalizers } = jit.platform().take_startup();
    // SAFETY: the linker found these in the arrays that the program's own compiler made for this purpose, and in those of
    // libraries; everything they depend on is Ready, and nothing is ever unmapped.
    unsafe {
        indirect.into_iter().for_each(|descriptor| ifunc::bind(descriptor));
        program.add_finalizers(finalizers);
        jit.process_symbols().begin_libraries(|constructors| program.run_initializers(constructors));
        program.run_initializers(initializers);
    }
}

/// Ends the cache's thread: what is compiled from here on is stored many at a time, and at the end. That something could not be stored is
/// no error.
fn store_what_was_compiled(
    jit: &'static Jit,
    observers: &Arc<Observers>,
    args: &RunArgs,
) -> Result<(), RunError> {
    jit.retire_cache();
    // The program waits for children of its own, and should find no others.
    if let Some(helpers) = jit.helpers() {
        helpers.retire();
    }
    let Some(disk) = jit.disk_cache() else { return Ok(()) };
    let (observers, is_verbose) = (observers.clone(), args.verbose > 0);
    let mut told = 0;
    let mut note_failure = move || {
        let failed = disk.pack().stats().failed_writes;
        let Some(failure) = disk.failure().filter(|_| failed > told) else { return };
        told = failed;
        let what =
            format!("{failed} entries could not be stored in {}: {failure}", disk.pack().path().display());
        if is_verbose {
            verbose::say(&what);
        }
        observers.note_unstored(what);
    };
    note_failure();
    on_exit(move |_| {
        jit.flush_cache();
        note_failure();
    })?;
    Ok(())
}

/// The builder's options for the cache, if one is wanted.
fn cache_options(args: &RunArgs) -> Result<Option<CacheOptions>, RunError> {
    let Some(directory) = cache::directory(args.cache.as_deref()) else {
        return if args.cache_mode.is_some() { Err(RunError::NoCache) } else { Ok(None) };
    };
    let mode = match args.cache_mode {
        None | Some(CacheModeArg::ReadWrite) => CacheMode::ReadWrite,
        Some(CacheModeArg::ReadOnly) => CacheMode::ReadOnly,
        Some(CacheModeArg::RequireHit) => CacheMode::RequireHit,
    };
    let options = CacheOptions::directory(directory).mode(mode);
    Ok(Some(if args.verbose > 0 { options.observer(verbose::print_cache) } else { options }))
}

/// Begins to watch. The report is due at `exit`, after everything that the program registers.
fn observe(args: &RunArgs) -> Result<Arc<Observers>, RunError> {
    let program = args.files.first().and_then(|file| file.file_name()).unwrap_or_default().to_string_lossy();
    let backtrace = args.backtrace || is_on("URUK_BACKTRACE");
    let stats = args.stats.and_then(StatsArg::form);
    record::begin_if_read(stats)?;
    let observers = Observers::install(args.trace.as_deref(), stats, backtrace, &program)?;
    let at_exit = observers.clone();
    on_exit(move |_| {
        if let Err(error) = at_exit.finish() {
            report::error(&error);
        }
    })?;
    Ok(observers)
}

/// Whether the environment asks for something.
fn is_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Makes everything ready to run that the entry needs.
fn link(
    args: &RunArgs,
    executor: Option<RemoteProgram>,
    observers: &Arc<Observers>,
    dispatcher: Arc<RetiringDispatcher>,
) -> Result<(&'static Jit, ExecutorSymbolDef, Beside), RunError> {
    let jit: &'static Jit = Box::leak(Box::new(build(args, executor, dispatcher)?)); // never dropped: its code runs to the end
    executor::load_libraries(jit, args)?;
    if let Some(refused) = jit.cache_refused() {
        report::warning("the program runs without a cache", refused);
    }
    let page = page::beside(jit, &args.dashboard)?;
    if let Some(after) = args.why_after {
        why_after::watch(jit.session(), after, observers)?;
    }
    // Nothing of the program has run, so there is no pointer to a variable that moves.
    jit.low_addresses().allow_copies(true);
    let linked = add_and_link(jit, args, observers);
    let entry = linked.map_err(|error| with_what_is_missing(error, jit, args))?;
    jit.low_addresses().allow_copies(false);
    Ok((jit, entry, page))
}

fn add_and_link(jit: &Jit, args: &RunArgs, observers: &Observers) -> Result<ExecutorSymbolDef, RunError> {
    let mut is_instrumented = false;
    let source =
        SourceOptions { with_lines: args.wants_lines(), ..SourceOptions::of_engine(jit, args.optimize) };
    let (package, others) = package::load_package(jit, &args.files, &args.no_image, source)?;
    if let Some(package) = package {
        observers.watch_image(package);
    }
    for file in others {
        let added = add_file(jit, file, args.language.as_deref(), source);
        is_instrumented |= added.map_err(|error| stray(error, file, args))?;
    }
    let mut wanted: Vec<&str> = args.undefined.iter().map(String::as_str).collect();
    if is_instrumented {
        profile::find_runtime(jit)?;
        wanted.push(PROFILE_RUNTIME);
    }
    jit.link_with(&args.entry, &wanted).map_err(|source| without_entry(source, args))
}

/// Advice where something had to be in the cache and was not. The error says what it was.
fn with_what_is_missing(error: RunError, jit: &Jit, args: &RunArgs) -> RunError {
    let is_required = args.cache_mode == Some(CacheModeArg::RequireHit);
    let has_missed =
        || jit.cache_stats().is_some_and(|stats| stats.interface_misses + stats.object_misses > 0);
    if is_required && has_missed() { RunError::NotCached { source: Box::new(error) } } else { error }
}

/// An argument behind a file that is itself no file, or none for us, was mostly meant for the program.
fn stray(error: RunError, file: &Path, args: &RunArgs) -> RunError {
    let is_no_file = |error: &JitError| match error {
        JitError::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        JitError::Foreign { .. } => true,
        _ => false,
    };
    match (error, args.files.first()) {
        (RunError::Jit(source), Some(first)) if first != file && is_no_file(&source) => {
            RunError::Stray { first: first.clone(), argument: file.to_owned(), source: Box::new(source) }
        }
        (error, _) => error,
    }
}

/// Advice where the entry itself is missing, and not something that it needs.
fn without_entry(source: JitError, args: &RunArgs) -> RunError {
    match &source {
        JitError::Lookup(LookupError::NotFound { symbols, near, .. })
            if symbols.iter().any(|symbol| symbol.as_str() == args.entry) =>
        {
            let near = near.iter().find(|(missing, _)| missing.as_str() == args.entry);
            RunError::NoEntry { entry: args.entry.clone(), near: near.map(|(_, near)| near.to_string()) }
        }
        _ => RunError::Link { source },
    }
}

fn entry_to_name(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean --entry {near}?"),
        None => "name the function to call: --entry NAME".to_owned(),
    }
}

fn build(
    args: &RunArgs,
    executor: Option<RemoteProgram>,
    dispatcher: Arc<RetiringDispatcher>,
) -> Result<Jit, RunError> {
    // Loaded before memory for code is reserved, which then lies next to them and within reach.
    let process = ProcessSymbols::of_program();
    let loaded_here = if executor.is_some() { &[][..] } else { &args.load };
    for library in loaded_here {
        process.load_library(library).map_err(JitError::from)?;
    }
    let builder = Jit::builder().optimization(args.optimize).dispatcher(dispatcher).process_symbols(process);
    let mut builder = builder
        .owns_process(true)
        .keep_dependants(false)
        .partition(partition(args.partition, args.parts, args.jobs))
        .compile_on_call(on_call(args));
    if args.debugger {
        builder = builder.debugger(true);
    }
    if args.backtrace {
        builder = builder.debug_info(true);
    }
    if let Some(perf) = args.perf {
        builder = builder.perf(PerfFormat::from(perf));
    }
    if args.tiered {
        let delay = Duration::from_millis(args.tier_delay.into());
        builder = builder.tiers(CallCounting::new().with_threshold(args.tier_threshold).with_quiet(delay));
    }
    let is_on_call = args.lazy.is_some() || args.tiered;
    if let Some(trace) = order::trace_file(args.trace_compile.as_deref(), is_on_call)? {
        builder = builder.trace_compile(trace);
    }
    if let Some(directory) = &args.dump {
        builder = builder.dump(dump(directory)?);
    } else if let Some(options) = cache_options(args)? {
        builder = builder.cache(options);
    }
    let builder = match args.passes.as_str() {
        "default" => builder,
        "none" => builder.pipeline(OptimizationPipeline::none()),
        passes => builder.pipeline(OptimizationPipeline::passes(passes)),
    };
    let builder = match args.verbose {
        0 => builder,
        verbosity => verbose::watched(builder, verbosity),
    };
    let builder = executor.into_iter().fold(builder, JitBuilder::executor);
    let helpers = args.helpers.settings();
    let builder = helpers.into_iter().fold(builder, JitBuilder::compile_in);
    Ok(builder.build()?)
}

/// The piece that is compiled on a call. gdb moves a breakpoint on a line of a function that it does not know yet to the next line of the file
/// that it knows, so it is told of whole modules. Functions that change their code have to be compiled by themselves.
fn on_call(args: &RunArgs) -> Option<OnCall> {
    let asked = args.lazy.map(OnCall::from)?;
    Some(if args.debugger && !args.tiered { OnCall::Module } else { asked })
}

/// Adds a file; says whether it counts what it executes.
pub(super) fn add_file(
    scope: &Scope,
    file: &Path,
    language: Option<&str>,
    options: SourceOptions<'_>,
) -> Result<bool, RunError> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|source| RunError::Input { source })?;
        if let Some(language) = language {
            let name = Path::new("<standard input>");
            let bitcode = clang::compile_text(name, &bytes, language, options)?;
            scope.add_ir(ObjectBuffer::new(name.display().to_string(), bitcode))?;
            return Ok(false);
        }
        let file = ObjectBuffer::new("<standard input>", bytes);
        let is_instrumented = object::is_instrumented(&file);
        scope.add_buffer(file)?;
        return Ok(is_instrumented);
    }
    match clang::language(file) {
        Some(language) => {
            // A missing source is reported as any other missing file.
            File::open(file)
                .map_err(|source| JitError::Read { path: file.into(), source: Arc::new(source) })?;
            let bitcode = clang::compile_to_bitcode(file, language, options)?;
            scope.add_ir(ObjectBuffer::new(file.display().to_string(), bitcode))?;
            Ok(false)
        }
        None => {
            scope.add_file(file)?;
            Ok(!ImageFile::is_image(file)
                && ObjectBuffer::open(file).is_ok_and(|file| object::is_instrumented(&file)))
        }
    }
}

/// The program's `argv`: the first file's name stands for the program's.
fn program_arguments(args: &RunArgs) -> Result<Vec<CString>, RunError> {
    let name = args.files.first().map(|file| file.as_os_str());
    name.into_iter()
        .chain(args.args.iter().map(|argument| argument.as_os_str()))
        .map(|argument| CString::new(argument.as_bytes()).map_err(|_| RunError::Argument))
        .collect()
}
