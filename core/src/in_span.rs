//! Spans around code that may panic, and subscribers that may panic as well.
//!
//! Who watches is told when a span is left and when it is closed, in the middle of a panic too. A subscriber that panics over that would
//! end the process: nothing may come out of a drop while something unwinds already.
//!
//! **Architecture Invariant:** what a subscriber panics with while another panic unwinds goes no further. Otherwise its panic is one like
//! that of any code of the embedder: it unwinds from where the span ends, with what the code has brought about still in its owner's
//! hands.

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::thread::panicking;

use tracing::Span;

use crate::panics::{catch, guard};

/// Runs `code` inside `span`, which is closed afterwards. For units and dispatchers that have spans of their own.
///
/// If `code` panics, so does this; should a subscriber panic because the span ends over that, the panic hook alone hears of it.
///
/// # Cost
/// A look whether anybody listens. An allocation if somebody does.
#[inline(always)]
pub fn in_span<R>(span: Span, code: impl FnOnce() -> R) -> R {
    Watched::new(span).around(code)
}

/// Enters `span` until the guard is dropped, which closes it. For what cannot well be a closure: what a function gives back is lost if a
/// subscriber panics as its guard goes.
///
/// # Cost
/// As [`in_span`].
#[inline(always)]
pub fn inside(span: Span) -> Inside {
    Watched::new(span).enter()
}

/// A span that is closed when this is dropped. One pointer, and nothing behind it while nobody listens: what is done in spans is counted
/// in instructions.
#[derive(Debug)]
pub(crate) struct Watched(Option<Box<Span>>);

/// See [`inside`]. Stays on its thread.
#[derive(Debug)]
#[must_use = "otherwise the span ends at once"]
pub struct Inside(Option<Box<Span>>, PhantomData<*const ()>);

impl Inside {
    /// The span, to record what is known by now.
    pub fn span(&self) -> Option<&Span> {
        self.0.as_deref()
    }
}

impl Watched {
    #[inline(always)]
    pub(crate) fn new(span: Span) -> Self {
        Self(if span.is_disabled() { None } else { Some(boxed(span)) })
    }

    #[inline(always)]
    pub(crate) fn enter(mut self) -> Inside {
        Inside(self.0.take().map(enter), PhantomData)
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
        if let Some(span) = self.0.take() {
            leave(span);
        }
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
        // Who keeps a list of what is open may have taken it in before another panicked.
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
    // Whoever has panicked first is told of; these were told to the panic hook. Their payloads may panic in turn.
    panics.for_each(|payload| drop(guard(|| drop(payload))));
    if let Some(payload) = first {
        resume_unwind(payload);
    }
}
