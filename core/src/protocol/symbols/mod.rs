//! The verbs of symbols: they are defined, claimed, resolved, emitted, fail and go.

pub(crate) mod absolute;
pub(crate) mod claim;
pub(crate) mod define;
pub(crate) mod emit;
pub(in crate::protocol) mod fail;
pub(crate) mod presence;
pub(in crate::protocol) mod remove;
pub(in crate::protocol) mod resolve;
pub(crate) mod retry;
