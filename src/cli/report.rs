//! Errors as people read them: one block on stderr, the cause below what it prevented.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::iter::successors;

/// Prints `error` and its causes.
pub(crate) fn error(error: &dyn Error) {
    // Nothing is left to say if stderr is gone.
    let _ = std::io::stderr().write_all(render(&format!("error: {error}"), error.source()).as_bytes());
}

/// Prints what is done otherwise than was asked, and why. It is done all the same.
pub(crate) fn warning(what: &str, cause: &dyn Error) {
    let _ = std::io::stderr().write_all(render(&format!("warning: {what}"), Some(cause)).as_bytes());
}

/// The block: what is said, then each cause, indented.
fn render(said: &str, cause: Option<&dyn Error>) -> String {
    let mut block = format!("{said}\n");
    for cause in successors(cause, |error| (*error).source()) {
        let indented = cause.to_string().replace('\n', "\n    ");
        // Writing to a string does not fail.
        let _ = writeln!(block, "  because: {indented}");
    }
    block
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
        assert_eq!(render(&format!("error: {error}"), error.source()), block);
    }
}
