//! Recordings: `uruk run --record` writes one, `uruk trace` reads it.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use uruk::pipeline::runtime::exit::{ExitError, flush_streams, on_exit};
use uruk_recorder::{
    ClaimHistory, EnableError, History, Note, OpenError, Options, PathWork, Reader, ThreadId,
};

use super::flight::{self, NoFlight};
use super::stats_report::ReportForm;

/// `uruk trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The verb.
    #[command(subcommand)]
    command: TraceCommand,
}

/// The verbs of `uruk trace`.
#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Print the notes of a recording in the order of time, whole also after the program was killed.
    #[command(after_help = super::examples::TRACE_EXAMPLES)]
    Dump {
        /// A recording, or the number of a process that runs or was ended; `last` is the one that began last.
        #[arg(value_name = "FILE|PID")]
        recording: PathBuf,
        /// How a note is written: a line for people, or an object of JSON a line.
        #[arg(long, value_name = "text|json", value_enum, default_value = "text")]
        format: Format,
    },
    /// Print what was done for each unit: the most work first.
    #[command(after_help = super::examples::TRACE_EXAMPLES)]
    Units {
        /// A recording, or the number of a process that runs or was ended; `last` is the one that began last.
        #[arg(value_name = "FILE|PID")]
        recording: PathBuf,
    },
    /// Print the critical path of the slowest lookup: which units held it up, and how long.
    #[command(after_help = super::examples::TRACE_EXAMPLES)]
    Path {
        /// A recording, or the number of a process that runs or was ended; `last` is the one that began last.
        #[arg(value_name = "FILE|PID")]
        recording: PathBuf,
    },
}

/// The reports of `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsArg {
    /// How long each stage took; the default.
    Stages,
    /// The work on each unit: the most first.
    Units,
    /// The critical path of the slowest lookup.
    Path,
    /// The figures of `stages` as one object of JSON, in one line.
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Why there is no recording, or nothing is printed of one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("{}: cannot be read as a recording", path.display())]
    Open { path: PathBuf, source: OpenError },
    #[error(transparent)]
    NoFlight(#[from] NoFlight),
    #[error("{}: it is there already and is no recording, so it is left as it is; name another file", path.display())]
    Occupied { path: PathBuf },
    #[error("cannot replace the recording {}", path.display())]
    Replace { path: PathBuf, source: io::Error },
    #[error("cannot record")]
    Enable(#[from] EnableError),
    #[error("cannot print")]
    Print(#[from] io::Error),
    #[error("cannot prepare the end of the program")]
    Exit(#[from] ExitError),
}

/// Begins to record into a file, which may be an older recording.
pub(super) fn begin(path: &Path) -> Result<(), RecordError> {
    if path.symlink_metadata().is_ok() {
        if Reader::open(path).is_err() {
            return Err(RecordError::Occupied { path: path.to_owned() });
        }
        let replaced = std::fs::remove_file(path);
        replaced.map_err(|source| RecordError::Replace { path: path.to_owned(), source })?;
    }
    Ok(uruk_recorder::enable(Options { file: Some(path.to_owned()), ..Options::default() })?)
}

/// Begins to record in memory if this process reads it, for the statistics of stages or a line on a terminal, and does not record yet.
pub(crate) fn begin_if_read(stats: Option<ReportForm>) -> Result<(), RecordError> {
    if !uruk_recorder::is_on() && (stats.is_some() || io::stderr().is_terminal()) {
        uruk_recorder::enable(Options::default())?;
    }
    Ok(())
}

impl StatsArg {
    /// The form of the report of stages, if it is one.
    pub(crate) fn form(self) -> Option<ReportForm> {
        match self {
            Self::Stages => Some(ReportForm::Tables),
            Self::Json => Some(ReportForm::Json),
            Self::Units | Self::Path => None,
        }
    }

    /// Has the program's end print what the recorder has noted, if that is asked for.
    pub(crate) fn print_at_exit(self) -> Result<(), RecordError> {
        if self.form().is_some() {
            return Ok(()); // `observe.rs` prints it.
        }
        on_exit(move |_| {
            let Some(mut reader) = flight::reader() else { return };
            let history = history(&mut reader);
            flush_streams(); // The table comes after what the program printed.
            // Nothing is left to say if stderr is gone.
            let _ = match self {
                Self::Path => write!(io::stderr(), "\n{}", Slowest(&history)),
                _ => write!(io::stderr(), "\n{}", Units(&history)),
            };
        })?;
        Ok(())
    }
}

/// Does what `uruk trace` is asked for. A reader that has enough, such as `head`, is no error.
pub(crate) fn trace(args: &TraceArgs) -> Result<(), RecordError> {
    let printed = match &args.command {
        TraceCommand::Dump { recording, format } => dump(&mut open(recording)?, *format),
        TraceCommand::Units { recording } => print(Units(&history(&mut open(recording)?))),
        TraceCommand::Path { recording } => print(Slowest(&history(&mut open(recording)?))),
    };
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

fn open(recording: &Path) -> Result<Reader, RecordError> {
    let path = flight::file_of(recording)?;
    Reader::open(&path).map_err(|source| RecordError::Open { path, source })
}

fn history(reader: &mut Reader) -> History {
    let mut history = History::default();
    history.read(reader);
    history
}

fn print(table: impl fmt::Display) -> io::Result<()> {
    write!(io::stdout().lock(), "{table}")
}

fn dump(reader: &mut Reader, format: Format) -> io::Result<()> {
    let batch = reader.read();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (thread, note) in &batch.notes {
        match format {
            Format::Text => write_line(&mut out, reader, *thread, note)?,
            Format::Json => write_object(&mut out, reader, *thread, note)?,
        }
    }
    if batch.lost > 0 && matches!(format, Format::Text) {
        writeln!(out, "{} older notes were overwritten", batch.lost)?;
    }
    out.flush()
}

fn write_line(out: &mut impl io::Write, reader: &Reader, thread: ThreadId, note: &Note) -> io::Result<()> {
    let (millis, name) = (note.time as f64 / 1e6, reader.name(note.name));
    let name = name.escape_debug();
    let (thread, kind) = (reader.thread_name(thread), note.kind.text());
    writeln!(
        out,
        "{millis:>14.6} ms  {:<16} {kind:<12} {name} {:#x} {:#x}",
        thread.escape_debug(),
        note.a,
        note.b
    )
}

fn write_object(out: &mut impl io::Write, reader: &Reader, thread: ThreadId, note: &Note) -> io::Result<()> {
    let [thread_name, name] = [reader.thread_name(thread), reader.name(note.name)].map(JsonText);
    let Note { time, kind, session, a, b, .. } = note;
    let kind = kind.text();
    writeln!(
        out,
        r#"{{"time_ns":{time},"thread":{},"thread_name":{thread_name},"kind":"{kind}","session":{session},"name":{name},"a":{a},"b":{b}}}"#,
        thread.0
    )
}

/// A text of a file that may say anything, as JSON writes it.
struct JsonText(String);

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The table by unit.
struct Units<'a>(&'a History);

impl fmt::Display for Units<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut claims: Vec<&ClaimHistory> = self.0.claims.values().collect();
        claims.sort_by_key(|claim| std::cmp::Reverse(claim.work()));
        writeln!(f, "{:>10} {:>10} {:>10}  unit: its longest phases", "work ms", "queued ms", "blocked ms")?;
        for claim in claims {
            let (work, queued, blocked) =
                (millis(claim.work()), millis(claim.queued()), millis(claim.blocked));
            write!(f, "{work:>10.3} {queued:>10.3} {blocked:>10.3}  {}", claim.unit.escape_debug())?;
            let mut phases: Vec<_> = claim.phases.iter().collect();
            phases.sort_by_key(|(_, own)| std::cmp::Reverse(**own));
            for (place, (phase, own)) in phases.into_iter().take(3).enumerate() {
                let before = if place == 0 { ": " } else { ", " };
                write!(f, "{before}{} {:.3}", phase.escape_debug(), millis(*own))?;
            }
            writeln!(f)?;
        }
        lost(f, self.0)
    }
}

/// The path of the slowest lookup.
struct Slowest<'a>(&'a History);

impl fmt::Display for Slowest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(id) = self.0.slowest_lookup() else {
            writeln!(f, "no lookup has waited and ended")?;
            return lost(f, self.0);
        };
        let (lookup, path) = (&self.0.lookups[&id], self.0.critical_path(id));
        let took: u64 = path.iter().map(|step| step.nanos()).sum();
        writeln!(f, "the lookup of `{}` took {:.3} ms:", lookup.symbol.escape_debug(), millis(took))?;
        for step in &path {
            let what = match step.what {
                PathWork::Working => "works",
                PathWork::Queued => "waits in the queue",
                _ => "not known",
            };
            let begun = millis(step.begin.saturating_sub(lookup.lodged));
            writeln!(
                f,
                "{begun:>12.3} ms {:>12.3} ms  {} {what}",
                millis(step.nanos()),
                step.unit.escape_debug()
            )?;
        }
        lost(f, self.0)
    }
}

fn lost(f: &mut fmt::Formatter<'_>, history: &History) -> fmt::Result {
    match history.sums.lost {
        0 => Ok(()),
        lost => writeln!(f, "{lost} older notes were overwritten: what they said is missing"),
    }
}
