//! Cycles of waits: whoever can never go on is told so, and nobody else.

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
