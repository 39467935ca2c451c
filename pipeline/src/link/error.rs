//! Why an object could not be linked.

use std::fmt;
use std::sync::Arc;

use uruk_core::{ExecutorAddr, LookupError, Readable};

use crate::executor::NotStatic;
use crate::memory::MemoryError;

/// A place in an object: the beginning of every message about a relocation or a malformed byte.
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

/// A symbol without a definition, and one place that needs it.
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
        /// The defect.
        what: Box<str>,
    },
    /// A relocation that this linker does not apply.
    #[error("{site}: unsupported relocation {kind} against `{}`{advice}", Readable(symbol))]
    UnsupportedRelocation {
        /// Where.
        site: Box<Site>,
        /// The relocation's name, or its number.
        kind: Box<str>,
        /// The symbol that it refers to.
        symbol: Box<str>,
        /// Advice, starting with a separator; may be empty.
        advice: &'static str,
    },
    /// Initial-exec or local-exec thread-local storage, of a variable whose distance from the thread pointer is not the
    /// same on every thread.
    #[error(
        "{site}: relocation {kind} reaches the thread-local variable `{}` at a fixed distance from the thread \
         pointer (the {model} model), but {reason}; recompile `{}` with -fPIC -ftls-model=global-dynamic, or hand its LLVM \
         bitcode over instead (clang -emit-llvm -c, rustc --emit=llvm-bc)",
        Readable(symbol), site.object
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
    #[error("{site}: relocation {kind} against `{}`, which {what}", Readable(symbol))]
    ThreadLocal {
        /// Where.
        site: Box<Site>,
        /// The relocation's name.
        kind: &'static str,
        /// The symbol that it refers to.
        symbol: Box<str>,
        /// The kind of the symbol.
        what: &'static str,
    },
    /// A value does not fit the field it belongs into.
    #[error(
        "{site}: {kind} against `{}` at {target}: {value:#x} does not fit in {bits} {} bits{advice}",
        Readable(symbol), if *.signed { "signed" } else { "unsigned" }
    )]
    OutOfRange {
        /// Where.
        site: Box<Site>,
        /// The relocation's name.
        kind: &'static str,
        /// The symbol that it refers to.
        symbol: Box<str>,
        /// Where that is.
        target: ExecutorAddr,
        /// The value or distance that was to be stored.
        value: i64,
        /// Width of the field.
        bits: u8,
        /// Whether the field is sign-extended.
        signed: bool,
        /// Advice, starting with a separator; may be empty.
        advice: &'static str,
    },
    /// Symbols that the resolution did not answer for.
    #[error("undefined: {}", Undefined(.symbols))]
    Undefined {
        /// The symbols, each with one place that needs it.
        symbols: Arc<[UndefinedSymbol]>,
        /// [`LookupError::NotFound`], which says where the session looked. Nothing if no session was asked.
        source: Option<LookupError>,
    },
    /// Two objects of one graph both define a symbol.
    #[error("`{}` is defined by both {first} and {second}", Readable(symbol))]
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
    /// The object has thread-local variables, and their places were not given.
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

/// Symbols, each group with the place that needs them: `` `a`, `b` (needed by `main` at main.o: .text+0x4, +0x9)``.
struct Undefined<'a>(&'a [UndefinedSymbol]);

impl UndefinedSymbol {
    /// The place of the reference: everything but the offset.
    fn referrer(&self) -> (Option<&str>, &str, &str) {
        (self.referrer.as_deref(), &self.site.object, &self.site.section)
    }
}

impl fmt::Display for Undefined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN)];
        let groups = shown.chunk_by(|one, next| one.referrer() == next.referrer());
        for (index, group) in groups.enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            for (index, UndefinedSymbol { symbol, .. }) in group.iter().enumerate() {
                write!(f, "{}`{}`", if index == 0 { "" } else { ", " }, Readable(symbol))?;
            }
            let UndefinedSymbol { site, referrer, .. } = &group[0];
            let site = match referrer.as_deref().map(Readable) {
                Some(referrer) => {
                    write!(f, " (needed by `{referrer}` at ")?;
                    // The object of one function is called by its file and that function, which has just been named.
                    let file =
                        site.object.strip_suffix(referrer.of()).and_then(|file| file.strip_suffix(": "));
                    Site { object: file.unwrap_or(&site.object).into(), ..site.clone() }
                }
                None => {
                    f.write_str(" (needed at ")?;
                    site.clone()
                }
            };
            write!(f, "{site}")?;
            group[1..].iter().try_for_each(|other| write!(f, ", +{:#x}", other.site.offset))?;
            f.write_str(")")?;
        }
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
