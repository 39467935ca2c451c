//! What a unit is handed and what becomes of it: resolved, emitted, delegated, failed, and who hears of that in which order.

mod broken_cycles;
mod delegation;
mod demanded_by_dependants;
mod failure;
mod functions;
mod order_of_effects;
mod responsibility;
