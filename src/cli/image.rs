//! `uruk image`: a program is compiled and linked ahead, and its file is described. `uruk run` runs it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uruk::core::Readable;
use uruk::pipeline::image::{ImageFile, ImageReader, ImageSymbol, SymbolTraits};
use uruk::pipeline::ir::Partition;
use uruk::pipeline::memory::SegmentKind;
use uruk::pipeline::runtime::process::ProcessSymbols;
use uruk::{CacheOptions, ImageBuilder, Jit, JitError};

use super::clang::SourceOptions;
use super::image_args::{ImageBuildArgs, ImageInfoArgs};
use super::observe::{Observers, TraceError};
use super::record::{self, RecordError};
use super::run::{RunError, add_file, cores};
use super::stats_report::ReportForm;
use super::{cache, report};

/// Why an image was not made, or not described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageCommandError {
    #[error(transparent)]
    Jit(#[from] JitError),
    #[error(transparent)]
    File(#[from] RunError),
    #[error("cannot build the image {}", path.display())]
    Build { path: PathBuf, source: JitError },
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("which file is the image to be? Name it: -o FILE.uim")]
    Unnamed,
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Compiles and links the files, and writes the image.
pub(crate) fn build(args: &ImageBuildArgs) -> Result<(), ImageCommandError> {
    let path = output(args)?;
    let name = path.display().to_string();
    let stats = args.stats.then_some(ReportForm::Tables);
    record::begin_if_read(stats)?;
    let observers = Observers::install(None, stats, false, &name)?;
    let built = builder(args).and_then(|builder| {
        let source =
            SourceOptions { optimize: args.optimize, with_lines: false, processor: Some(args.cpu.name()) };
        for file in &args.files {
            add_file(&builder, file, args.language.as_deref(), source)?;
        }
        let failed = |source| ImageCommandError::Build { path: path.clone(), source };
        let image = builder.build().map_err(failed)?;
        image.write(&path).map_err(failed)
    });
    // From here on the terminal shows an error, or nothing.
    observers.leave_terminal();
    built?;
    if let Err(error) = observers.finish() {
        report::error(&error);
    }
    Ok(())
}

fn builder(args: &ImageBuildArgs) -> Result<ImageBuilder, ImageCommandError> {
    let process = ProcessSymbols::of_program();
    for library in &args.load {
        process.load_library(library).map_err(JitError::from)?;
    }
    let threads = args.jobs.map_or_else(cores, usize::from);
    let partition = match args.parts {
        Some(parts) => Partition::new(args.partition, parts.into()).of_all_modules(),
        None => Partition::new(args.partition, threads),
    };
    let mut jit = Jit::builder().optimization(args.optimize).partition(partition);
    jit = jit.threads(threads).process_symbols(process);
    if let Some(directory) = cache::directory(args.cache.as_deref()) {
        jit = jit.cache(CacheOptions::directory(directory));
    }
    let builder = ImageBuilder::for_processors(args.cpu, jit)?;
    if let Some(refused) = builder.cache_refused() {
        report::warning("the image is built without a cache", refused);
    }
    Ok(builder)
}

/// The file of the image. Without a name it lies in the current directory, where linkers put their output.
fn output(args: &ImageBuildArgs) -> Result<PathBuf, ImageCommandError> {
    if let Some(output) = &args.output {
        return Ok(output.clone());
    }
    let first = args.files.first().filter(|file| *file != Path::new("-"));
    let stem = first.and_then(|file| file.file_stem()).ok_or(ImageCommandError::Unnamed)?;
    Ok(Path::new(stem).with_extension("uim"))
}

/// Describes an image.
pub(crate) fn info(args: &ImageInfoArgs) -> Result<(), ImageCommandError> {
    let image = ImageFile::open(&args.image).map_err(JitError::from)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut told = describe(image.reader(), &mut output);
    if args.units {
        told = told.and_then(|()| list(&mut output, "files", image.reader().units().map(str::to_owned)));
    }
    if args.imports {
        let imports = image.reader().imports().map(|(name, traits)| {
            let weak = if traits.contains(SymbolTraits::WEAK) { "  may be missing" } else { "" };
            format!("{}{weak}", Readable(name))
        });
        told = told.and_then(|()| list(&mut output, "imports", imports));
    }
    if args.symbols {
        let mut symbols: Vec<ImageSymbol<'_>> =
            image.reader().symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL)).collect();
        symbols.sort_unstable_by_key(|symbol| (symbol.address, symbol.name));
        let symbols = symbols.iter().map(|symbol| {
            format!("{:#10x} {:>8}  {}", symbol.address, symbol.size_bytes, Readable(symbol.name))
        });
        told = told.and_then(|()| list(&mut output, "symbols: address, bytes, name", symbols));
    }
    match told.and_then(|()| output.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ImageCommandError::Output(error)),
        _ => Ok(()),
    }
}

fn describe(reader: &ImageReader, output: &mut impl Write) -> io::Result<()> {
    let bytes = |kind: SegmentKind| -> u64 {
        let of_kind = reader.segments().iter().filter(|segment| segment.kind == kind);
        of_kind.map(|segment| segment.content_bytes).sum()
    };
    let zero_fill: u64 = reader.segments().iter().map(|segment| segment.zero_fill_bytes).sum();
    let global = reader.symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL));
    let functions = global.filter(|symbol| symbol.traits.contains(SymbolTraits::CALLABLE)).count();
    let [own, imported, other] = reader.relocations();
    let id: String = reader.id()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let rows = [
        ("file", format!("{}, {} bytes", reader.path().display(), reader.file_bytes())),
        ("id", id),
        ("processors", reader.processor().map_or("unknown", |level| level.name()).to_owned()),
        ("made of", format!("{} files", reader.units().len())),
        ("defines", format!("{functions} functions for others, {} symbols in all", reader.symbols().len())),
        ("refers to", format!("{} names that it does not define", reader.imports().len())),
        ("code", format!("{} bytes", bytes(SegmentKind::Code))),
        ("constants", format!("{} bytes", bytes(SegmentKind::ReadOnly))),
        (
            "data",
            format!("{} bytes, {zero_fill} of zeros", bytes(SegmentKind::Data) + bytes(SegmentKind::FarData)),
        ),
        ("addresses", format!("{own} of its own, {imported} of others, {other} other fields")),
    ];
    rows.into_iter().try_for_each(|(name, value)| writeln!(output, "{name:<11} {value}"))
}

fn list(output: &mut impl Write, title: &str, rows: impl Iterator<Item = String>) -> io::Result<()> {
    writeln!(output, "{title}")?;
    rows.into_iter().try_for_each(|row| writeln!(output, "  {row}"))
}
