//! Spans around code that may panic, and subscribers that may panic as well.
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

use crate::panics::{catch, guard};

/// Runs `code` inside `span`, which is closed afterwards. For units and dispatchers that have spans of their own.
///
/// If `code` panics, so does this; if a subscriber then panics because the span ends, only the panic hook sees it.
///
/// # Cost
/// A look whether there is a subscriber. An allocation if there is one.
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

/// A span that is closed when this is dropped. One pointer, and nothing behind it without a subscriber: code in spans is measured in
/// instructions.
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
