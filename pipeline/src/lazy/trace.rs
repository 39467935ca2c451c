//! Traces: which functions were compiled by runs of programs, a line each.
//!
//! ```text
//! # uruk trace 1
//! f<tab>3f2a91bc00d1e27a<tab>sqlite3.bc<tab>sqlite3VdbeExec<tab>upper<tab>-
//! i<tab>91aa00c3d2e4f511<tab>-<tab>print<tab>upper<tab>(Int64,String)
//! ```
//!
//! | column | `f`: a function of a file | `i`: a code instance of a host |
//! |---|---|---|
//! | 2 | the beginning of the hash of the file's contents | the same of its unit |
//! | 3 | the file, by its last name | `-` |
//! | 4 | the function's name in the file | the method's name |
//! | 5 | the tier, `lower` or `upper` | the same |
//! | 6 | `-` | the signature |
//!
//! A `-` stands for what is not known. Names are written as in an [order of calls](CallOrder). Lines may stand in any order, and often, and
//! the head may be anywhere: `sort -u` of several traces is a trace. Other lines that begin with `#` say nothing. Kinds that are not known
//! and columns behind the last one are for later versions.
//!
//! `trace_file.rs` writes lines while a program runs.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::order::{CallOrder, CallOrderError, FunctionOfFile, is_order, unescaped, write_escaped};
use crate::tiers::Tier;

/// The first line of a trace that was not sorted.
pub(super) const HEAD: &str = "# uruk trace 1";

/// Stands for what is not known.
const UNKNOWN: &str = "-";

/// A function that a run has compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TracedFunction {
    /// Its name, and that of its file.
    pub function: FunctionOfFile,
    /// The beginning of the hash of the file's contents, if it is known. The name counts first: this tells files of one name apart.
    pub source: Option<u64>,
}

/// The functions that runs of programs have compiled.
///
/// Its text is read by [`FromStr`]; an [order of calls](CallOrder) is taken too. A [`CompileTraceFile`](super::CompileTraceFile) writes one.
///
/// # Examples
/// ```
/// use uruk_pipeline::lazy::CompileTrace;
///
/// let text = "# uruk trace 1\nf\t3f2a91bc00d1e27a\tmain.bc\thelp\tupper\t-\n";
/// let trace: CompileTrace = text.parse()?;
/// assert_eq!(&*trace.functions[0].function.function, "help");
/// assert_eq!("# uruk order 1\nmain.bc\thelp\n".parse::<CompileTrace>()?.order(), trace.order());
/// # Ok::<(), uruk_pipeline::lazy::CompileTraceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileTrace {
    /// Each once, in the order of their first lines.
    pub functions: Vec<TracedFunction>,
    /// How many lines are of code instances, which only their host can compile.
    pub instances: usize,
    /// How many lines are of an unknown kind, or broken.
    pub unread: usize,
}

/// A text that is no [`CompileTrace`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileTraceError {
    /// No line of it is the head.
    #[error("a line of a trace is `{HEAD}`")]
    Head,
    /// It is an order of calls, and broken.
    #[error(transparent)]
    Order(#[from] CallOrderError),
}

impl CompileTrace {
    /// Whether a text is a trace or an order of calls.
    ///
    /// # Cost
    /// One pass over a text that is none.
    pub fn is_trace(text: &str) -> bool {
        is_order(text) || has_head(text)
    }

    /// Adds what another one has and this has not.
    pub fn merge(&mut self, other: Self) {
        let known: HashSet<_> = self.functions.iter().cloned().collect();
        self.functions.extend(other.functions.into_iter().filter(|function| !known.contains(function)));
        self.instances += other.instances;
        self.unread += other.unread;
    }

    /// The functions without the contents of their files.
    pub fn order(&self) -> CallOrder {
        let mut seen = HashSet::new();
        let names = self.functions.iter().map(|traced| &traced.function);
        CallOrder { functions: names.filter(|name| seen.insert(*name)).cloned().collect() }
    }
}

impl From<CallOrder> for CompileTrace {
    fn from(order: CallOrder) -> Self {
        let functions = order.functions.into_iter().map(|function| TracedFunction { function, source: None });
        Self { functions: functions.collect(), ..Self::default() }
    }
}

impl FromStr for CompileTrace {
    type Err = CompileTraceError;

    fn from_str(text: &str) -> Result<Self, CompileTraceError> {
        if is_order(text) {
            return Ok(text.parse::<CallOrder>()?.into());
        }
        if !has_head(text) {
            return Err(CompileTraceError::Head);
        }
        let (mut trace, mut seen) = (Self::default(), HashSet::new());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match Line::read(line) {
                Line::Function(function) if seen.contains(&function) => {}
                Line::Function(function) => {
                    seen.insert(function.clone());
                    trace.functions.push(function);
                }
                Line::Instance => trace.instances += 1,
                Line::Unread => trace.unread += 1,
            }
        }
        Ok(trace)
    }
}

enum Line {
    Function(TracedFunction),
    Instance,
    Unread,
}

impl Line {
    fn read(line: &str) -> Self {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            ["f", source, file, function, _, _, ..] if !file.is_empty() && !function.is_empty() => {
                match (unescaped(file), unescaped(function)) {
                    (Ok(file), Ok(function)) => Self::Function(TracedFunction {
                        function: FunctionOfFile { file, function },
                        source: u64::from_str_radix(source, 16).ok(),
                    }),
                    _ => Self::Unread,
                }
            }
            ["i", _, _, _, _, _, ..] => Self::Instance,
            _ => Self::Unread,
        }
    }
}

/// Whether a line is the head of a trace.
pub(super) fn has_head(text: &str) -> bool {
    text.lines().any(|line| line == HEAD)
}

/// The line of a function, with the end of the line.
pub(super) fn line(traced: &TracedFunction, tier: Tier) -> String {
    let TracedFunction { function: FunctionOfFile { file, function }, source } = traced;
    let tier = match tier {
        Tier::Lower => "lower",
        Tier::Upper => "upper",
    };
    let line = fmt::from_fn(|f| {
        f.write_str("f\t")?;
        match source {
            Some(source) => write!(f, "{source:016x}")?,
            None => f.write_str(UNKNOWN)?,
        }
        f.write_char('\t')?;
        write_escaped(f, file)?;
        f.write_char('\t')?;
        write_escaped(f, function)?;
        writeln!(f, "\t{tier}\t{UNKNOWN}")
    });
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(file: &str, function: &str, source: Option<u64>) -> TracedFunction {
        TracedFunction { function: FunctionOfFile::new(file, function), source }
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let functions = [
            traced("a/b.bc", "main", Some(1)),
            traced("#x", "\\tab\t and\nline\r", Some(u64::MAX)),
            traced("b c.bc", "ü", None),
        ];
        let lines: String = functions.iter().map(|function| line(function, Tier::Lower)).collect();
        assert_eq!(lines.lines().count(), 3, "{lines}");
        let trace: CompileTrace = format!("{HEAD}\n{lines}").parse().expect("it has a head");
        assert_eq!(trace, CompileTrace { functions: functions.into(), ..CompileTrace::default() });
    }

    #[test]
    fn sorted_and_merged_traces_are_traces() {
        let lines = ["c", "b", "a"].map(|name| line(&traced("m.bc", name, Some(7)), Tier::Upper));
        let upper = line(&traced("m.bc", "a", Some(7)), Tier::Lower);
        let mut all = vec![format!("{HEAD}\n"), format!("{HEAD}\n"), upper];
        all.extend(lines);
        all.sort();
        all.dedup();
        all.reverse(); // as where letters come before marks
        let trace: CompileTrace = all.concat().parse().expect("the head is somewhere");
        let names: Vec<_> = trace.functions.iter().map(|traced| &*traced.function.function).collect();
        assert_eq!(names, ["c", "b", "a"]);
        let mut both = trace.clone();
        both.merge(trace);
        assert_eq!(both.functions.len(), 3);
        both.merge(CallOrder { functions: vec![FunctionOfFile::new("m.bc", "a")] }.into());
        assert_eq!((both.functions.len(), both.order().functions.len()), (4, 3), "of any contents");
    }

    #[test]
    fn lines_that_are_not_understood_are_counted_and_passed_over() {
        let text = format!(
            "f\tzz\ta.bc\tlater\tupper\t-\tanother column\n\n# said by people\n{HEAD}\n\
             i\t1\t-\tprint\tupper\t(Int64)\nx\t1\nf\t1\ta.bc\nf\t1\t\tf\t-\t-\t-\nf\t1\ta\t\\q\t-\t-\t-\n"
        );
        let trace: CompileTrace = text.parse().expect("it has a head");
        assert_eq!(trace.functions, [traced("a.bc", "later", None)]);
        assert_eq!((trace.instances, trace.unread), (1, 4));
        for text in ["", "# uruk trace 2\n", "f\t1\ta.bc\tf\tupper\t-\n"] {
            assert_eq!(text.parse::<CompileTrace>(), Err(CompileTraceError::Head), "{text}");
        }
        let broken = "# uruk order 1\nmain\n".parse::<CompileTrace>().expect_err("an order has tabs");
        assert!(matches!(broken, CompileTraceError::Order(CallOrderError { line: 2, .. })));
    }
}
