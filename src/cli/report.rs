//! Errors as people read them: one block on stderr, the cause below what it prevented.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;

/// Prints `error` and its causes.
pub(crate) fn error(error: &dyn Error) {
    // Nothing is left to say if stderr is gone.
    let _ = std::io::stderr().write_all(render(error).as_bytes());
}

/// The block: the error, then each cause that says something new, indented.
fn render(error: &dyn Error) -> String {
    let mut block = format!("error: {error}\n");
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // A wrapper that shows its source has said it already.
        if !said.contains(&text) {
            let indented = text.replace('\n', "\n    ");
            let _ = writeln!(block, "  because: {indented}");
            said.push_str(&text);
        }
        cause = error.source();
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
    #[error("missing")]
    struct Inner;

    #[test]
    fn causes_follow_once_each() {
        let error = Outer { source: Middle { source: Inner } };
        assert_eq!(render(&error), "error: cannot run `x`\n  because: y is missing\n");
    }
}
