//! Text with a name, places in it, and errors that point at them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A piece of program text: a file, or the lines that belong together where a program is typed.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in errors.
    pub name: Arc<str>,
    /// The number of its first line.
    pub first_line: usize,
    /// The text.
    pub text: String,
}

/// From a byte of a text to one behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
}

impl Span {
    /// From where this begins to where `last` ends.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }
}

/// A mistake of a program, and its place. Printed with the line and a caret under the place.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_kaleidoscope::{Operators, Source, parse};
///
/// let source = Source { name: "a.k".into(), first_line: 7, text: "def f(x) x + y".into() };
/// let error = parse(&Arc::new(source), &mut Operators::new()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "there is no variable `y` here\n --> a.k:7:14\n  |\n7 | def f(x) x + y\n  |              ^"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The mistake.
    pub message: String,
    /// The text with the mistake.
    pub source: Arc<Source>,
    /// The mistake.
    pub span: Span,
    /// A text that would do.
    pub help: Option<String>,
    /// The text is right as far as it goes: more of it could make a program.
    pub is_incomplete: bool,
}

impl Diagnostic {
    pub(crate) fn new(source: &Arc<Source>, span: Span, message: impl Into<String>) -> Self {
        Self { message: message.into(), source: source.clone(), span, help: None, is_incomplete: false }
    }

    pub(crate) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    /// Line and column of the mistake, both counted from one; columns are characters.
    pub fn position(&self) -> (usize, usize) {
        let before = &self.source.text[..self.span.start];
        let line = before.matches('\n').count();
        (self.source.first_line + line, 1 + before.rsplit('\n').next().map_or(0, |line| line.chars().count()))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.source.text;
        let begin = text[..self.span.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[self.span.start..].find('\n').map_or(text.len(), |at| self.span.start + at);
        let marked = self.span.end.clamp(self.span.start, end);
        let carets = text[self.span.start..marked].chars().count().max(1);
        // The text before the carets is as wide as what stands before the mistake, tabs included.
        let before = text[begin..self.span.start].chars().map(|c| if c == '\t' { '\t' } else { ' ' });
        let (line, column) = self.position();
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "{}\n{margin}--> {}:{line}:{column}", self.message, self.source.name)?;
        writeln!(f, "{margin} |\n{number} | {}", text[begin..end].trim_end())?;
        write!(f, "{margin} | {}{}", before.collect::<String>(), "^".repeat(carets))?;
        match &self.help {
            Some(help) => write!(f, "\n{margin} = {help}"),
            None => Ok(()),
        }
    }
}

impl Error for Diagnostic {}
