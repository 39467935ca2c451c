//! The fate of a unit's responsibility: resolved, emitted, delegated, failed, and the order of the effects.

mod broken_cycles;
mod delegation;
mod demanded_by_dependants;
mod failure;
mod functions;
mod order_of_effects;
mod responsibility;
