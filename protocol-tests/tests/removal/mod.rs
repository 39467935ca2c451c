//! Symbols are removed or moved elsewhere, by name, by tracker and by dylib, in every state.

mod by_name;
mod clearing;
mod dependants;
mod owned_trackers;
mod resources_by_name;
mod together;
mod trackers;
mod transfer;
mod transfer_in_flight;
mod while_present;
