//! Urgent work comes first, and background work is held back: priorities, room, and the tickets of raised units.

mod demand;
mod demand_to_start;
mod lowered;
mod overloaded;
mod overloaded_tickets;
mod pool;
mod raised;
mod room_for_the_awaited;
mod tickets;
