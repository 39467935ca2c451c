//! Phases: spans around code that may panic, for subscribers that may panic as well, and the same as notes for the recorder.
//!
//! One call makes both: the span of a subscriber, and the two notes of a phase, which have the name of the span.
//!
//! A subscriber is called when a span is left and when it is closed, in the middle of a panic too. If it panicked then, it would end the
//! process: a drop must not panic while another panic unwinds.
//!
//! **Architecture Invariant:** a subscriber's panic while another panic unwinds goes no further. Otherwise its panic is like that of any
//! code of the embedder: it unwinds from the end of the span, and the results of the code inside stay with their owner.

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::thread::panicking;

use tracing::Span;
use uruk_recorder::Name;

use crate::ids::Id;
use crate::panics::{catch, guard};

/// Runs `code` inside `span`, which is closed afterwards. For units and dispatchers that have spans of their own.
///
/// If `code` panics, so does this; if a subscriber then panics because the span ends, only the panic hook sees it.
///
/// # Cost
/// A look whether there is a subscriber, and one whether there is a recorder. An allocation if there is a subscriber.
#[inline(always)]
pub fn in_span<R>(phase: impl Into<PhaseSpan>, code: impl FnOnce() -> R) -> R {
    Watched::new(phase.into()).around(code)
}

/// Enters `span` until the guard is dropped, which closes it. For what cannot well be a closure: what a function gives back is lost if a
/// subscriber panics as its guard goes.
///
/// # Cost
/// As [`in_span`].
#[inline(always)]
pub fn inside(phase: impl Into<PhaseSpan>) -> Inside {
    Watched::new(phase.into()).enter()
}

/// A span and the name of its notes, for [`in_span`] and [`inside`]: [`phase!`](crate::phase) makes one. A span alone is not noted.
#[derive(Debug)]
pub struct PhaseSpan(Span, Name);

impl PhaseSpan {
    /// A span that is noted by this name.
    #[inline(always)]
    pub fn new(name: &'static str, span: Span) -> Self {
        Self(span, if uruk_recorder::is_on() { uruk_recorder::write_name(name) } else { Name::NONE })
    }
}

impl From<Span> for PhaseSpan {
    fn from(span: Span) -> Self {
        Self(span, Name::NONE)
    }
}

/// A phase: `tracing`'s `debug_span!` of this name and these fields, which the recorder notes too.
#[macro_export]
macro_rules! phase {
    ($name:literal $($fields:tt)*) => {
        $crate::PhaseSpan::new($name, ::tracing::debug_span!($name $($fields)*))
    };
}
pub(crate) use phase;

/// A span that is closed when this is dropped. One pointer, and nothing behind it without a subscriber: code in spans is measured in
/// instructions.
#[derive(Debug)]
pub(crate) struct Watched(Option<Box<Span>>, Name);

/// See [`inside`]. Stays on its thread.
#[derive(Debug)]
#[must_use = "otherwise the span ends at once"]
pub struct Inside(Option<Box<Span>>, Name, PhantomData<*const ()>);

impl Inside {
    /// The span, to record what is known by now.
    pub fn span(&self) -> Option<&Span> {
        self.0.as_deref()
    }
}

impl Inside {
    /// Records an id that is known by now, as the recorder notes it.
    #[inline(always)]
    pub(crate) fn record_id(&self, field: &'static str, id: Option<impl Id>) {
        record_id(self.0.as_deref(), field, id);
    }
}

impl Watched {
    /// As [`Inside::record_id`], before the span is entered.
    #[inline(always)]
    pub(crate) fn record_id(&self, field: &'static str, id: Option<impl Id>) {
        record_id(self.0.as_deref(), field, id);
    }

    #[inline(always)]
    pub(crate) fn new(PhaseSpan(span, name): PhaseSpan) -> Self {
        Self(if span.is_disabled() { None } else { Some(boxed(span)) }, name)
    }

    #[inline(always)]
    pub(crate) fn enter(mut self) -> Inside {
        let inside = Inside(self.0.take().map(enter), self.1, PhantomData);
        if self.1 != Name::NONE {
            uruk_recorder::phase_begun(self.1);
        }
        inside
    }

    /// Runs `code` inside the span.
    #[inline(always)]
    pub(crate) fn around<R>(self, code: impl FnOnce() -> R) -> R {
        let inside = self.enter();
        let result = code();
        // Not left to the end of the scope: a result that is on its way out already would be lost in a panic over this.
        drop(inside);
        result
    }
}

impl Drop for Watched {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            close(span);
        }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        if self.1 != Name::NONE {
            uruk_recorder::phase_ended(self.1);
        }
        if let Some(span) = self.0.take() {
            leave(span);
        }
    }
}

#[inline(always)]
fn record_id(span: Option<&Span>, field: &'static str, id: Option<impl Id>) {
    if let (Some(span), Some(id)) = (span, id) {
        span.record(field, id.noted());
    }
}

#[cold]
fn boxed(span: Span) -> Box<Span> {
    Box::new(span)
}

#[cold]
fn enter(span: Box<Span>) -> Box<Span> {
    let entered = catch(|| span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
    if entered.is_err() {
        // A subscriber with a list of open spans may have entered it before another panicked.
        let left = catch(|| span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
        tell_end([entered.map(drop), left.map(drop), catch(|| drop(span))]);
        // Beneath another panic.
        return Box::new(Span::none());
    }
    span
}

#[cold]
fn leave(span: Box<Span>) {
    let left = catch(|| span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
    tell_end([left.map(drop), catch(|| drop(span))]);
}

#[cold]
fn close(span: Box<Span>) {
    tell_end([catch(|| drop(span))]);
}

/// Goes on with the first panic of a subscriber, unless another unwinds already.
fn tell_end<const TOLD: usize>(told: [std::thread::Result<()>; TOLD]) {
    let mut panics = told.into_iter().filter_map(Result::err);
    let first = if panicking() { None } else { panics.next() };
    // The first panic is passed on; the panic hook has seen the others. Their payloads may panic in turn.
    panics.for_each(|payload| drop(guard(|| drop(payload))));
    if let Some(payload) = first {
        resume_unwind(payload);
    }
}
