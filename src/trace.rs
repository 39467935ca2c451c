//! Every stage on every thread, as a trace in the format of Perfetto and `chrome://tracing`.
//!
//! A span becomes one slice on the track of the thread that was inside it. Workers have a track each, by
//! number, so that a thread that takes over a number goes on in its row; other threads have one in order of appearance.
//!
//! A slice has the name of its span, and what it is about stands in its arguments, so that a viewer can add up slices of one name.
//! The slice of a blocked thread, `dispatch.block`, says in `lookup` what it waits for. Another thread does its work meanwhile;
//! that thread's track shows when it took over (`replaces a blocked worker`).
//! `examples/blocked_workers.rs` writes such a trace; `uruk run --trace FILE` writes one of a program.
//!
//! Lines are written as spans end, by the thread that leaves them. The file is whole after each line (`trace/output.rs`),
//! however the process ends. [`TraceFile::finish`] says whether anything is missing.
//!
//! **Never** does it start a thread, own a thread-local with a destructor (spans end inside destructors of
//! thread-locals too), or write in a forked child. A write that fails ends the trace; `finish` reports it.

mod output;

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use uruk_core::sync::atomic::{AtomicU32, Ordering};
use uruk_core::sync::{Arc, Mutex};

use output::Output;

/// Writes the spans of a subscriber to a [`TraceFile`].
#[derive(Debug)]
pub struct TraceLayer(Arc<TraceFile>);

/// An open trace.
pub struct TraceFile {
    began: Instant,
    /// The process that opened it; a forked child shares the file's offset and must not write.
    process: u32,
    /// Tells this trace from others in thread-locals.
    number: u32,
    tracks: AtomicU32,
    output: Mutex<Output>,
}

/// Workers' tracks begin here, below those of other threads in the viewer.
const WORKER_TRACKS: u32 = 1000;

thread_local! {
    /// The trace this thread has last written to, and its track there. No destructor, so it can be read at any time.
    static TRACK: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// When a span was entered.
struct EnteredAt(Instant);

/// A span's fields.
#[derive(Default)]
struct Fields {
    /// As the inside of a JSON object.
    json: String,
    /// The purpose of a wait.
    of: Option<String>,
}

impl TraceLayer {
    /// Opens a trace at `path`, replacing what was there. Viewers show the process under the name of its executable.
    ///
    /// # Errors
    /// What the operating system says about the file.
    pub fn create(path: &Path) -> io::Result<(Self, Arc<TraceFile>)> {
        let executable = std::env::current_exe();
        let name = executable.as_ref().ok().and_then(|path| path.file_name()).unwrap_or_default();
        Self::create_of(path, &name.to_string_lossy())
    }

    /// The same of a process that viewers show as `process`.
    ///
    /// # Errors
    /// As [`TraceLayer::create`].
    pub fn create_of(path: &Path, process: &str) -> io::Result<(Self, Arc<TraceFile>)> {
        Ok(Self::write_to(File::create(path)?, process))
    }

    fn write_to(file: File, name: &str) -> (Self, Arc<TraceFile>) {
        static TRACES: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let first = format_args!(
            "{{\"ph\":\"M\",\"pid\":{process},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}",
            Json(name)
        );
        let file = Arc::new(TraceFile {
            began: Instant::now(),
            process,
            // Relaxed: a number no other trace has, nothing more. From one: a fresh thread has none.
            number: TRACES.fetch_add(1, Ordering::Relaxed) + 1,
            tracks: AtomicU32::new(0),
            output: Mutex::new(Output::new(file, first)),
        });
        (Self(file.clone()), file)
    }
}

impl TraceFile {
    /// Ends the trace. Spans that end later are not recorded; calling it again does nothing.
    ///
    /// # Errors
    /// The first write that failed since the trace was opened.
    pub fn finish(&self) -> io::Result<()> {
        if self.is_foreign() {
            return Ok(());
        }
        self.output.lock().finish()
    }

    fn span(&self, metadata: &Metadata<'_>, entered: Instant, duration: Duration, fields: &str) {
        let start = entered.saturating_duration_since(self.began);
        self.line(format_args!(
            "\"ph\":\"X\",\"ts\":{},\"dur\":{},\"name\":{},\"cat\":{},\"args\":{{{fields}}}",
            Micros(start),
            Micros(duration),
            Json(metadata.name()),
            Json(metadata.target()),
        ));
    }

    fn instant(&self, metadata: &Metadata<'_>, name: &str, fields: &str) {
        self.line(format_args!(
            "\"ph\":\"i\",\"s\":\"t\",\"ts\":{},\"name\":{},\"cat\":{},\"args\":{{{fields}}}",
            Micros(self.began.elapsed()),
            Json(name),
            Json(metadata.target()),
        ));
    }

    /// Adds one element on this thread's track.
    fn line(&self, members: fmt::Arguments<'_>) {
        if self.is_foreign() {
            return;
        }
        let track = self.track();
        self.output.lock().push(format_args!("{{\"pid\":{},\"tid\":{track},{members}}}", self.process));
    }

    /// This thread's track, which is named when the thread first appears.
    fn track(&self) -> u32 {
        let (number, track) = TRACK.get();
        if number == self.number {
            return track;
        }
        let worker = uruk_dispatch::current_worker().and_then(|worker| u32::try_from(worker).ok());
        let track = match worker {
            Some(worker) => WORKER_TRACKS + worker,
            // Relaxed: a number no other thread has, nothing more.
            None => self.tracks.fetch_add(1, Ordering::Relaxed) + 1,
        };
        TRACK.set((self.number, track));
        let thread = std::thread::current();
        let name =
            thread.name().unwrap_or_else(|| if is_first_thread() { "main" } else { "thread of the program" });
        for (kind, value) in [
            ("thread_name", format!("\"name\":{}", Json(name))),
            ("thread_sort_index", format!("\"sort_index\":{track}")),
        ] {
            self.output.lock().push(format_args!(
                "{{\"ph\":\"M\",\"pid\":{},\"tid\":{track},\"name\":\"{kind}\",\"args\":{{{value}}}}}",
                self.process
            ));
        }
        track
    }

    fn is_foreign(&self) -> bool {
        std::process::id() != self.process
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(EnteredAt(Instant::now()));
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(EnteredAt(entered)) = extensions.get() else { return };
        let lookup = (span.name() == BLOCK).then(|| lookup_around(&span)).flatten();
        let fields = match &lookup {
            Some(lookup) => &format!("\"lookup\":{}", Json(lookup)),
            None => extensions.get::<Fields>().map_or("", |fields| &fields.json),
        };
        self.0.span(span.metadata(), *entered, now.saturating_duration_since(*entered), fields);
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let name = if message.text.is_empty() { event.metadata().name() } else { &message.text };
        self.0.instant(event.metadata(), name, &message.fields.json);
    }
}

/// The span of a thread that is blocked, and does not know in what.
const BLOCK: &str = "dispatch.block";
/// The span of a lookup that waits.
const LOOKUP: &str = "lookup.wait";

/// The subject of the innermost lookup around `block`.
fn lookup_around<'a, S: LookupSpan<'a>>(block: &SpanRef<'a, S>) -> Option<String> {
    let lookup = block.scope().find(|span| span.name() == LOOKUP)?;
    lookup.extensions().get::<Fields>()?.of.clone()
}

impl Fields {
    fn member(&mut self, field: &Field, value: impl fmt::Display) {
        let comma = if self.json.is_empty() { "" } else { "," };
        write!(self.json, "{comma}{}:{value}", Json(field.name())).expect("a String takes everything");
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, Json(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.member(field, Json(&text));
        if field.name() == "of" {
            self.of = Some(text);
        }
    }
}

/// An event's text, apart from its other fields.
#[derive(Default)]
struct Message {
    text: String,
    fields: Fields,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{value:?}");
        } else {
            self.fields.record_debug(field, value);
        }
    }
}

/// Whether this is the thread that the process began with; the standard library does not name it, since `main` is C's.
fn is_first_thread() -> bool {
    // The link reads "PROCESS/task/THREAD".
    let Ok(link) = std::fs::read_link("/proc/thread-self") else { return false };
    let mut parts = link.iter();
    parts.next().is_some_and(|process| parts.next_back() == Some(process))
}

/// A string as JSON writes it.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Microseconds, the format's unit, to the nanosecond.
struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

impl fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceFile").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;
    use uruk_core::sync::{Latch, thread};
    use uruk_core::{Task, TaskDispatcher as _, TaskPriority};
    use uruk_dispatch::WorkStealingTaskDispatcher;

    /// A file that no other process sees, and its text.
    fn unnamed() -> (File, File) {
        static FILES: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers only have to differ.
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uruk-trace-{}-{number}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let reader = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (file, reader)
    }

    fn traced(body: impl FnOnce()) -> String {
        let (file, reader) = unnamed();
        let (layer, file) = TraceLayer::write_to(file, "test");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), body);
        file.finish().unwrap();
        file.finish().unwrap();
        io::read_to_string(reader).unwrap()
    }

    #[test]
    fn the_file_is_whole_after_each_span() {
        let (file, reader) = unnamed();
        let (layer, _file) = TraceLayer::write_to(file, "test");
        let events = || -> Vec<serde_json::Value> {
            let mut text = vec![0; reader.metadata().unwrap().len() as usize];
            std::os::unix::fs::FileExt::read_exact_at(&reader, &mut text, 0).unwrap();
            serde_json::from_slice(&text).expect("it is a list in JSON")
        };
        assert_eq!(events().len(), 1);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for index in 0..3 {
                tracing::debug_span!("link.fixup", edges = index).in_scope(|| ());
                let last = events().pop().expect("there is one");
                assert_eq!((&last["name"], &last["args"]["edges"]), (&"link.fixup".into(), &index.into()));
            }
        });
    }

    #[test]
    fn a_pipe_has_its_end_when_the_trace_is_finished() {
        let (reader, writer) = io::pipe().unwrap();
        let (layer, file) = TraceLayer::write_to(File::from(std::os::fd::OwnedFd::from(writer)), "test");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::debug_span!("link.fixup").in_scope(|| ());
        });
        file.finish().unwrap();
        let events: Vec<serde_json::Value> = serde_json::from_reader(reader).unwrap();
        assert_eq!(events.last().unwrap()["name"], "link.fixup");
    }

    #[test]
    fn a_span_becomes_a_complete_event_with_its_fields() {
        let trace = traced(|| {
            let span = tracing::debug_span!("ir.optimize", unit = "a \"b\"\n", size_bytes = 3, level = ?'x', late = tracing::field::Empty);
            span.in_scope(|| tracing::debug!(left = 1, "half way"));
            span.record("late", 7);
        });
        assert!(trace.starts_with("[\n{\"ph\":\"M\"") && trace.ends_with("\n]\n"), "{trace}");
        let fields = r#""name":"ir.optimize","cat":"uruk::trace::tests","args":{"unit":"a \"b\"\u000a","size_bytes":3,"level":"'x'"}"#;
        assert!(trace.contains(fields), "{trace}");
        assert!(
            trace.contains(r#""name":"half way""#) && trace.contains(r#""args":{"left":"1"}"#),
            "{trace}"
        );
        assert_eq!(trace.matches('{').count(), trace.matches('}').count());
    }

    #[test]
    fn each_worker_has_a_track_of_its_name() {
        let trace = traced(|| {
            let subscriber = tracing::dispatcher::get_default(Clone::clone);
            let pool = WorkStealingTaskDispatcher::builder().workers(1).build().unwrap();
            let done = Arc::new(Latch::new());
            let task = Task::new("t", TaskPriority::Demanded, {
                let done = done.clone();
                move || {
                    tracing::dispatcher::with_default(&subscriber, || {
                        tracing::debug_span!("link.fixup").in_scope(|| ());
                    });
                    done.open();
                }
            });
            pool.dispatch(task).unwrap();
            done.wait();
        });
        assert!(
            trace.contains(r#""tid":1000,"name":"thread_name","args":{"name":"uruk-worker-0"}"#),
            "{trace}"
        );
        let line = trace.lines().find(|line| line.contains("link.fixup")).unwrap();
        assert!(line.contains("\"tid\":1000,"), "{line}");
    }

    #[test]
    fn other_threads_have_tracks_in_order_of_appearance() {
        let trace = traced(|| {
            tracing::debug_span!("first").in_scope(|| ());
            let subscriber = tracing::dispatcher::get_default(Clone::clone);
            let other = thread::spawn(move || {
                tracing::dispatcher::with_default(&subscriber, || {
                    tracing::debug_span!("second").in_scope(|| ())
                });
            });
            other.join().unwrap();
        });
        let track = |name: &str| {
            let line =
                trace.lines().find(|line| line.contains(&format!("\"name\":\"{name}\",\"cat\""))).unwrap();
            line.split("\"tid\":").nth(1).unwrap().split(',').next().unwrap().to_owned()
        };
        assert_eq!((track("first"), track("second")), ("1".to_owned(), "2".to_owned()));
    }

    #[test]
    fn a_disk_that_is_full_is_reported_at_the_end() {
        let (layer, file) = TraceLayer::create(Path::new("/dev/full")).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::debug_span!("lost").in_scope(|| ());
        });
        assert_eq!(file.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
