//! The containers of the state: slabs, pieces, tables; memory on its way out. Nothing here knows a symbol.

pub(crate) mod claimed_room;
pub(in crate::protocol) mod memory;
pub(in crate::protocol) mod pieces;
pub(in crate::protocol) mod places;
pub(crate) mod slab;

pub(crate) use crate::ids::{
    ClaimId, DylibId, EmissionId, FailureId, GeneratorId, Id, NeedId, ProductId, QueryId, RowId, TrackerId,
    UnitId, WaitId,
};
pub(crate) use claimed_room::ClaimedRoom;
pub(crate) use memory::{Memory, Takes};
pub(crate) use pieces::Pieces;
pub(crate) use places::PlaceTable;
pub(crate) use slab::{NONE, Slab, TwoLines};
