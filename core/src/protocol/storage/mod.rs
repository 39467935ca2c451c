//! What the state stands in: ids, slabs, pieces, tables; memory on its way out. Nothing here knows a symbol.

pub(crate) mod claimed_room;
pub(crate) mod ids;
pub(in crate::protocol) mod memory;
pub(in crate::protocol) mod pieces;
pub(in crate::protocol) mod places;
pub(crate) mod slab;
