//! Errors as people read them: one block on stderr, the cause below what it prevented.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::iter::successors;

/// Prints `error` and its causes.
pub(crate) fn error(error: &dyn Error) {
    // Nothing is left to say if stderr is gone.
    let _ = std::io::stderr().write_all(render(error).as_bytes());
}

/// The block: the error, then each cause, indented.
fn render(error: &dyn Error) -> String {
    let mut block = format!("error: {error}\n");
    for cause in successors(error.source(), |error| (*error).source()) {
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
        assert_eq!(render(&error), block);
    }
}
