//! What exists: definitions of every kind, link orders, platforms, and transactions of them.

mod absolute;
mod alias_graphs;
mod aliases;
mod define;
mod known_addresses;
mod link_orders;
mod overriding;
mod platform;
mod refused_whole;
mod retry;
mod side_effects;
mod tokens;
mod transaction;
mod transaction_model;
