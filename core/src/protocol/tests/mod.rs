//! Tests of the whole state machine. Those of one file stand in it.
//!
//! | what | against which |
//! |---|---|
//! | `model/` | random histories of all operations, against a naive model |
//! | `priorities.rs` | random histories of needs, against the rule of priorities |
//! | `slices.rs`, `between_slices.rs` | what is done in slices, against what is done at once; what others see in between |
//! | `dependences.rs` | the forest alone, against a naive one; families of graphs with bounds on steps |
//! | `dependants.rs` | who needs what is Ready, alone, against plain lists; what that costs |
//! | `deadlock.rs` | who is told of a cycle when it looks, and who is not |
//! | `check.rs` | each check, against a state that breaks what it checks |
//! | `holds.rs` | how much one hold of the lock moves and frees |

mod between_slices;
mod check;
mod deadlock;
mod dependants;
mod dependences;
mod holds;
pub(in crate::protocol) mod model;
pub(in crate::protocol) mod numbers;
mod priorities;
mod scene;
mod slices;
