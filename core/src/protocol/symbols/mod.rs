//! What happens to symbols: they are defined, claimed, resolved, emitted, published, and fail.

pub(crate) mod absolute;
pub(crate) mod claim;
pub(crate) mod define;
pub(crate) mod emit;
pub(in crate::protocol) mod fail;
pub(in crate::protocol) mod initializers;
pub(in crate::protocol) mod publish;
pub(in crate::protocol) mod resolve;
