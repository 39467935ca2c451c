//! Cycles of waits: a lookup that can never go on is told so, and no other.

mod asynchronous;
mod cycles;
mod detached;
mod edges;
mod falling;
mod generators;
mod graphs;
mod in_place;
mod late_edges;
mod late_threads;
mod left_turns;
mod looks;
mod platform;
mod taken_over;
