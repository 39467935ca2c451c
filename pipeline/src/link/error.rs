//! Why an object could not be linked.

use std::fmt;
use std::sync::Arc;

use uruk_core::{ExecutorAddr, LookupError};

use crate::memory::MemoryError;
use crate::runtime::tls::NotStatic;

/// A place in an object: what every message about a relocation or a malformed byte starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The object's name, as its owner gave it.
    pub object: Box<str>,
    /// The section; empty when the offset counts from the start of the file.
    pub section: Box<str>,
    /// The offset in the section, or in the file.
    pub offset: u64,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.section.is_empty() {
            write!(f, "{}: offset {:#x}", self.object, self.offset)
        } else {
            write!(f, "{}: {}+{:#x}", self.object, self.section, self.offset)
        }
    }
}

/// A symbol that nobody defines, and one place that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndefinedSymbol {
    /// The symbol's name.
    pub symbol: Box<str>,
    /// The first place that refers to it.
    pub site: Site,
    /// The function or variable in which that place lies, where the object names one.
    pub referrer: Option<Box<str>>,
}

/// Why a link failed.
///
/// Cheap to clone: one failure fans out to every query that waits for the object's symbols.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The object is malformed, foreign, truncated, or uses a feature that has no meaning here.
    #[error("{site}: {what}")]
    Object {
        /// Where.
        site: Box<Site>,
        /// What is wrong.
        what: Box<str>,
    },
    /// A relocation that this linker does not apply.
    #[error("{site}: unsupported relocation {kind} against `{symbol}`{advice}")]
    UnsupportedRelocation {
        /// Where.
        site: Box<Site>,
        /// The relocation's name, or its number.
        kind: Box<str>,
        /// What it refers to.
        symbol: Box<str>,
        /// What to do, starting with a separator; may be empty.
        advice: &'static str,
    },
    /// Initial-exec or local-exec thread-local storage, of a variable whose distance from the thread pointer is not the
    /// same on every thread.
    #[error(
        "{site}: relocation {kind} reaches the thread-local variable `{symbol}` at a fixed distance from the thread \
         pointer (the {model} model), but {reason}; recompile `{}` with -fPIC -ftls-model=global-dynamic, or hand its LLVM \
         bitcode over instead (clang -emit-llvm -c, rustc --emit=llvm-bc)",
        site.object
    )]
    StaticTls {
        /// Where.
        site: Box<Site>,
        /// The relocation's name.
        kind: &'static str,
        /// The variable.
        symbol: Box<str>,
        /// How compilers call this way to a variable.
        model: &'static str,
        /// Why the variable is not at such a distance.
        reason: NotStatic,
    },
    /// A relocation for thread-local variables against an ordinary symbol, or the other way round.
    #[error("{site}: relocation {kind} against `{symbol}`, which {what}")]
    ThreadLocal {
        /// Where.
        site: Box<Site>,
        /// The relocation's name.
        kind: &'static str,
        /// What it refers to.
        symbol: Box<str>,
        /// What the symbol is.
        what: &'static str,
    },
    /// A value does not fit the field it belongs into.
    #[error(
        "{site}: {kind} against `{symbol}` at {target}: {value:#x} does not fit in {bits} {} bits{advice}",
        if *.signed { "signed" } else { "unsigned" }
    )]
    OutOfRange {
        /// Where.
        site: Box<Site>,
        /// The relocation's name.
        kind: &'static str,
        /// What it refers to.
        symbol: Box<str>,
        /// Where that is.
        target: ExecutorAddr,
        /// The value or distance that was to be stored.
        value: i64,
        /// Width of the field.
        bits: u8,
        /// Whether the field is sign-extended.
        signed: bool,
        /// What to do, starting with a separator; may be empty.
        advice: &'static str,
    },
    /// Symbols that the resolution did not answer for.
    #[error("undefined: {}", list_undefined(.symbols))]
    Undefined {
        /// The symbols, each with one place that needs it.
        symbols: Arc<[UndefinedSymbol]>,
        /// [`LookupError::NotFound`], which says where the session looked. Nothing if no session was asked.
        source: Option<LookupError>,
    },
    /// Two objects of one graph both define a symbol.
    #[error("`{symbol}` is defined by both {first} and {second}")]
    Duplicate {
        /// The symbol.
        symbol: Box<str>,
        /// The object that came first.
        first: Box<str>,
        /// The other one.
        second: Box<str>,
    },
    /// The memory manager refused.
    #[error("no memory for {object}")]
    Memory {
        /// The object's name.
        object: Box<str>,
        /// Why.
        source: MemoryError,
    },
    /// The object has thread-local variables, and nobody has said where they are.
    #[error(
        "{object}: its thread-local variables have no module; place them (`Link::place_tls`) before resolving"
    )]
    TlsNotPlaced {
        /// The object's name.
        object: Box<str>,
    },
}

/// At most this many undefined symbols are printed, and told who refers to them.
pub(super) const SHOWN: usize = 16;

fn list_undefined(symbols: &[UndefinedSymbol]) -> String {
    use fmt::Write as _;
    let mut text = String::new();
    for (index, symbol) in symbols.iter().take(SHOWN).enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let UndefinedSymbol { symbol, site, referrer } = symbol;
        // Writing to a string does not fail.
        let _ = match referrer {
            Some(referrer) => write!(text, "{separator}`{symbol}` (needed by `{referrer}` at {site})"),
            None => write!(text, "{separator}`{symbol}` (needed at {site})"),
        };
    }
    if symbols.len() > SHOWN {
        let _ = write!(text, " and {} more", symbols.len() - SHOWN);
    }
    text
}
