//! Why objects could not be linked.

use std::collections::HashSet;
use std::error::Error;

use uruk_core::{LookupError, SymbolName};

use crate::executor::PublishError;
use crate::link::{Allocated, Link, LinkError};

/// Why a link failed: the original error, so that a handler can ask for its type.
pub(super) type Failed = Box<dyn Error + Send + Sync>;

/// The cause for which the place refused the code of `object`.
pub(super) fn refused(error: PublishError, object: &str) -> Failed {
    match error {
        PublishError::Memory(source) => LinkError::Memory { object: object.into(), source }.into(),
        PublishError::Action(cause) => cause,
    }
}

/// The error of the lookup of references. If symbols are missing, with the places that refer to them.
pub(super) fn told_where(link: &Link<Allocated>, error: LookupError) -> Failed {
    let LookupError::NotFound { symbols, .. } = &error else { return error.into() };
    let missing: HashSet<&str> = symbols.iter().map(SymbolName::as_str).collect();
    let symbols = link.undefined(|name| missing.contains(name));
    if symbols.is_empty() {
        return error.into();
    }
    LinkError::Undefined { symbols: symbols.into(), source: Some(error.as_source_of_names()) }.into()
}
