//! Errors as people read them: one block on stderr, the cause below what it prevented.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::iter::successors;

use uruk::core::{LookupError, WithCauses};
use uruk::pipeline::link::LinkError;

use super::{flight, hints};

/// Prints `error` and its causes.
pub(crate) fn error(error: &(dyn Error + 'static)) {
    let mut hints = hints::of(error);
    hints.extend(flight::hint_of(error));
    // Nothing is left to say if stderr is gone.
    let block = render(&format!("error: {error}"), error.source(), &hints);
    let _ = std::io::stderr().write_all(block.as_bytes());
}

/// Prints what is done otherwise than was asked, and why. It is done all the same.
pub(crate) fn warning(what: &str, cause: &(dyn Error + 'static)) {
    let _ = std::io::stderr().write_all(render(&format!("warning: {what}"), Some(cause), &[]).as_bytes());
}

/// The block: what is said, then each cause that says something new and each hint, indented.
fn render(said: &str, cause: Option<&(dyn Error + 'static)>, hints: &[String]) -> String {
    let mut block = format!("{said}\n");
    let causes = successors(cause, |error| (*error).source());
    let has_hints = !hints.is_empty();
    for cause in
        causes.filter(|cause| !(is_said_by_its_cause(*cause) || has_hints && says_where_alone(*cause)))
    {
        let indented = cause.to_string().replace('\n', "\n    ");
        // Writing to a string does not fail.
        let _ = writeln!(block, "  because: {indented}");
    }
    hints.iter().for_each(|hint| block += &format!("  hint: {hint}\n"));
    block
}

/// Which libraries were searched is no news beside what to do about it.
fn says_where_alone(error: &(dyn Error + 'static)) -> bool {
    let whole = WithCauses(error).chain().next();
    matches!(whole.and_then(|error| error.downcast_ref()), Some(LookupError::NotFound { named: true, .. }))
}

/// That a function has failed is no news beside what it lacks: the function and its file are named there.
fn is_said_by_its_cause(error: &dyn Error) -> bool {
    let lacks = |source: &(dyn Error + 'static)| {
        let whole = WithCauses(source).chain().next();
        matches!(whole.and_then(|error| error.downcast_ref()), Some(LinkError::Undefined { .. }))
    };
    error.source().is_some_and(lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot run `x`")]
    struct Outer {
        source: Middle,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("y is missing")]
    struct Middle {
        source: Inner,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("nobody wrote it\nand nobody will")]
    struct Inner;

    #[test]
    fn causes_follow_one_a_line() {
        let error = Outer { source: Middle { source: Inner } };
        let block = "error: cannot run `x`\n  because: y is missing\n  because: nobody wrote it\n    and nobody will\n";
        assert_eq!(render(&format!("error: {error}"), error.source(), &[]), block);
    }
}
