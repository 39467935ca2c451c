//! Sessions on dispatchers with threads: pools, reactors, serial queues, and those that refuse what they are given.

mod blocking;
mod in_place;
mod leaf;
mod observers;
mod pool;
mod rayon;
mod refused;
mod serial_queue;
mod serial_queue_ends;
mod serial_queue_graphs;
mod storm;
mod threads_refused;
mod tokio_host;
