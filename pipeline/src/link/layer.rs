//! The object linking layer: an object and the responsibility for its symbols in, running code out.
//!
//! The layer carries each object through the typed phases of [`Link`] and speaks to the session at two
//! points: it announces addresses as soon as memory is reserved, so that objects which refer to one
//! another can link, and it emits once the code is fixed up and its pages are final. Between the two it
//! asks for the addresses of what the object refers to; that lookup never blocks, the link goes on in its
//! handler, on whichever worker runs it.
//!
//! Every failure drops the value in hand: memory goes back, and the responsibility fails its symbols with
//! the error as their cause.

use std::error::Error;
use std::fmt;

use rustc_hash::FxHashMap;
use tracing::{debug_span, trace};
use uruk_core::sync::Arc;
use uruk_core::{
    DependenceGroup, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, LookupKind, LookupRequest, LookupResult,
    LookupSet, MaterializationResponsibility, RequiredState, ResolvedResponsibility, Resource, SymbolFlags,
    SymbolLookupFlags, SymbolMap, SymbolName,
};
