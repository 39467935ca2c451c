//! The order in which functions of a program were first called, and its text.
//!
//! ```text
//! # uruk order 1
//! # ... lines that begin with `#`, and empty ones, say nothing
//! session.bc<tab>main
//! sqlite3.bc<tab>sqlite3_open
//! libx.a(y.o)<tab>init
//! ```
//!
//! A file goes by its last name, so that the text holds wherever the files lie. In names a tab, a line's end and a backslash are `\t`, `\n`,
//! `\r` and `\\`, and a file that begins with `#` begins with `\#`.

use std::fmt::{self, Write as _};
use std::str::FromStr;

/// A function's name from one run of a program to the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionOfFile {
    /// The file's name, without its directories.
    pub file: Box<str>,
    /// The function's name in the file.
    pub function: Box<str>,
}

impl FunctionOfFile {
    /// A function of a file, whose name may have directories.
    pub fn new(file: &str, function: &str) -> Self {
        // The member of an archive may have a slash in its name, and then is not found under another one.
        let file = file.rsplit('/').next().unwrap_or(file);
        Self { file: file.into(), function: function.into() }
    }
}

/// Functions in the order of their first calls.
///
/// Its text is for files: [`Display`](fmt::Display) writes it, [`FromStr`] reads it.
///
/// # Examples
/// ```
/// use uruk_pipeline::lazy::CallOrder;
///
/// let text = "# uruk order 1\nmain.bc\tmain\nmain.bc\thelp\n";
/// let order: CallOrder = text.parse()?;
/// assert_eq!(&*order.functions[1].function, "help");
/// assert_eq!("main.bc\tmain\n".parse::<CallOrder>().unwrap_err().line, 1);
/// # Ok::<(), uruk_pipeline::lazy::CallOrderError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOrder {
    /// Each once.
    pub functions: Vec<FunctionOfFile>,
}

/// A text that is no [`CallOrder`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}", what.sentence())]
#[non_exhaustive]
pub struct CallOrderError {
    /// Which line, counted from one.
    pub line: usize,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Head,
    Tab,
    Escape,
}

const HEAD: &str = "# uruk order 1";

impl What {
    const fn sentence(self) -> &'static str {
        match self {
            Self::Head => "an order of calls begins with `# uruk order 1`",
            Self::Tab => "it is a file, one tab and a function",
            Self::Escape => r"behind a backslash stands `t`, `n`, `r`, `#` or another backslash",
        }
    }
}

impl fmt::Display for CallOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "# Functions in the order of their first calls: file, tab, function.")?;
        for FunctionOfFile { file, function } in &self.functions {
            if file.starts_with('#') {
                f.write_char('\\')?;
            }
            write_escaped(f, file)?;
            f.write_char('\t')?;
            write_escaped(f, function)?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl FromStr for CallOrder {
    type Err = CallOrderError;

    fn from_str(text: &str) -> Result<Self, CallOrderError> {
        if !is_order(text) {
            return Err(CallOrderError { line: 1, what: What::Head });
        }
        let lines = (1..).zip(text.lines()).skip(1);
        let functions = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let functions = functions.map(|(number, line)| read_line(line).map_err(|what| (number, what)));
        let functions: Result<_, _> = functions.collect();
        Ok(Self { functions: functions.map_err(|(line, what)| CallOrderError { line, what })? })
    }
}

/// Whether a text begins as an order of calls does.
pub(super) fn is_order(text: &str) -> bool {
    text.lines().next() == Some(HEAD)
}

fn read_line(line: &str) -> Result<FunctionOfFile, What> {
    match line.split_once('\t') {
        Some((file, function)) if !file.is_empty() && !function.is_empty() && !function.contains('\t') => {
            Ok(FunctionOfFile { file: unescaped(file)?, function: unescaped(function)? })
        }
        _ => Err(What::Tab),
    }
}

pub(super) fn write_escaped(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    name.chars().try_for_each(|char| match char {
        '\t' => f.write_str(r"\t"),
        '\n' => f.write_str(r"\n"),
        '\r' => f.write_str(r"\r"),
        '\\' => f.write_str(r"\\"),
        char => f.write_char(char),
    })
}

pub(super) fn unescaped(name: &str) -> Result<Box<str>, What> {
    let (mut chars, mut unescaped) = (name.chars(), String::with_capacity(name.len()));
    while let Some(char) = chars.next() {
        unescaped.push(match char {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(same @ ('\\' | '#')) => same,
                _ => return Err(What::Escape),
            },
            char => char,
        });
    }
    Ok(unescaped.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let names = [("a/b.bc", "main"), ("#x", "#y"), ("b c.bc", "\\tab\t and\nline\r"), ("ü", "operator|")];
        let functions = names.map(|(file, function)| FunctionOfFile::new(file, function)).into();
        let order = CallOrder { functions };
        assert_eq!(&*order.functions[0].file, "b.bc");
        let text = order.to_string();
        assert_eq!(text.lines().count(), 2 + names.len(), "{text}");
        assert_eq!(text.parse(), Ok(order));
        assert_eq!(CallOrder::default().to_string().parse(), Ok(CallOrder::default()));
    }

    #[test]
    fn what_is_no_order_says_in_which_line() {
        for (text, line) in [
            ("", 1),
            ("# uruk order 2\n", 1),
            ("main.bc\tmain\n", 1),
            ("# uruk order 1\n\n#\nmain", 4),
            ("# uruk order 1\na\tb\tc", 2),
            ("# uruk order 1\n\tb", 2),
            ("# uruk order 1\na\tb\na\t\n", 3),
            ("# uruk order 1\na\t\\x\n", 2),
            ("# uruk order 1\na\tb\\", 2),
        ] {
            let error = text.parse::<CallOrder>().expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
        }
    }
}
