//! A tracing subscriber that panics when a span is left, and again when it is closed, costs the code inside that span and nothing else; not
//! the process, though something unwinds there already. In a binary of its own: the subscriber is the whole process's.

mod each_span;
mod lodging;

use std::any::Any;
use std::panic::{set_hook, take_hook};

use tracing::span::{Attributes, Id, Record};
use uruk_core::FailureCause;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Mutex, MutexGuard};

const SPANS: [&str; 9] = [
    "dispatch.run",
    "dispatch.block",
    "unit.materialize",
    "session.lookup",
    "lookup.lodge",
    "lookup.wait",
    "symbols.resolve",
    "symbols.emit",
    "session.commit",
];

const ALL: usize = SPANS.len();
const NONE: usize = SPANS.len() + 1;

/// Over which of them the subscriber panics, [`ALL`] or [`NONE`].
static PANICS_OVER: AtomicUsize = AtomicUsize::new(NONE);

/// When it does.
static WHEN: AtomicUsize = AtomicUsize::new(0);

/// At one end of a span, or at both.
const ENDS: [usize; 3] = [LEFT, CLOSED, LEFT | CLOSED];
const LEFT: usize = 1;
const CLOSED: usize = 2;

/// How often it has.
static PANICKED: AtomicUsize = AtomicUsize::new(0);

const SUBSCRIBER_SAYS: &str = "a subscriber's own affair";
const UNIT_SAYS: &str = "what the unit said";

struct Panics;

impl Panics {
    fn told(&self, span: &Id, end: usize) {
        let span = span.into_u64() as usize - 1;
        // Relaxed, all: set between the dispatchers, whose threads have ended or not begun.
        let over = PANICS_OVER.load(Ordering::Relaxed);
        let concerned = over == span || over == ALL && span < ALL;
        if concerned && WHEN.load(Ordering::Relaxed) & end != 0 {
            PANICKED.fetch_add(1, Ordering::Relaxed);
            panic!("{SUBSCRIBER_SAYS}");
        }
    }
}

impl tracing::Subscriber for Panics {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        of.is_span()
    }

    /// Which of [`SPANS`] it is: all of one name are one to this subscriber.
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = span.metadata().name();
        Id::from_u64(SPANS.iter().position(|span| *span == name).unwrap_or(NONE) as u64 + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, span: &Id) {
        self.told(span, LEFT);
    }

    fn try_close(&self, span: Id) -> bool {
        self.told(&span, CLOSED);
        true
    }
}
/// Whether there is a subscriber yet. Its holder sees only its own spans.
static WATCHED: Mutex<bool> = Mutex::new(false);

/// Has the subscriber watch, for this test alone until the guard is dropped.
fn watched() -> MutexGuard<'static, bool> {
    let mut watched = WATCHED.lock();
    if !std::mem::replace(&mut *watched, true) {
        tracing::subscriber::set_global_default(Panics).expect("the first of this process");
        let told = take_hook();
        // Thousands of panics, each with its backtrace if it lies on the way of another.
        set_hook(Box::new(move |panic| {
            if ![Some(SUBSCRIBER_SAYS), Some(UNIT_SAYS)].contains(&message_of(panic.payload())) {
                told(panic);
            }
        }));
    }
    watched
}

/// Has the subscriber panic over `over`.
fn panic_over(over: usize) {
    // Relaxed: see where it is read.
    PANICS_OVER.store(over, Ordering::Relaxed);
}
fn message_of(payload: &dyn Any) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied())
}

fn says(cause: &FailureCause, what: &str) -> bool {
    matches!(cause, FailureCause::Panicked(said) if &**said == what)
}
