//! The functions that programs find in their host: two functions that print. And what the session itself prints, between their output.

use std::cell::Cell;
use std::io::{Write as _, stdout};

use super::session::HostFunction;

/// Functions that programs may call without declaring them.
pub(super) const FUNCTIONS: [HostFunction; 2] = [("putchard", putchard), ("printd", printd)];

thread_local! {
    /// Whether a program has printed the beginning of a line. Programs run on the thread that says things of them.
    static IN_LINE: Cell<bool> = const { Cell::new(false) };
}

/// Prints the character with this number; answers zero.
extern "C" fn putchard(character: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as C's putchar does")]
    let byte = character as i64 as u8;
    // A program does not hear that its output has no reader.
    _ = stdout().write_all(&[byte]);
    IN_LINE.set(byte != b'\n');
    0.0
}

/// Prints a number on a line of its own; answers zero.
extern "C" fn printd(value: f64) -> f64 {
    say(&number(value));
    0.0
}

/// Prints a line.
pub(super) fn say(line: &str) {
    end_line();
    // There is no other place to report a missing reader.
    _ = writeln!(stdout(), "{line}");
}

/// Ends the line that a program has begun, and has everything printed that was said.
pub(super) fn end_line() {
    if IN_LINE.replace(false) {
        _ = writeln!(stdout());
    }
    _ = stdout().flush();
}

/// A number as it would be typed, if it is not very long.
pub(super) fn number(value: f64) -> String {
    let is_short = value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs());
    if is_short { format!("{value}") } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [55.0, 0.1, -2.5, 1e300, 1e-9, f64::NAN].map(number);
        assert_eq!(numbers, ["55", "0.1", "-2.5", "1e300", "1e-9", "NaN"]);
    }
}
