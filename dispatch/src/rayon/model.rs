//! Random histories of the board, with threads that do as they are told, against what it promises.
//!
//! | file | what it holds |
//! |---|---|
//! | `model/world.rs` | the board and the threads around it, one step of each at a time |
//! | `model/step.rs` | what histories are made of |
//! | `model/check.rs` | what the board promises, checked after every step |
//! | `model/end.rs` | the ends: spares without the host, the host without spares |

mod check;
mod end;
mod step;
mod world;

use uruk_core::sync::Arc;

use crate::limits::BoundsWanted;

use super::board::Board;
use world::World;

pub(super) fn board(host_threads: usize, bounds: BoundsWanted) -> Board {
    Board::new(host_threads, Arc::new(bounds.of(host_threads)))
}

pub(super) fn unlimited() -> BoundsWanted {
    BoundsWanted { background_workers_max: Some(usize::MAX), ..BoundsWanted::default() }
}

#[test]
fn whatever_happens_somebody_is_called_and_everything_is_taken() {
    let bounds = [
        unlimited(),
        BoundsWanted::default(),
        BoundsWanted { background_workers_max: Some(2), ..BoundsWanted::default() },
    ];
    for seed in 0..400 {
        let mut world = World::new(1 + seed as usize % 3, bounds[(seed / 3) as usize % 3], seed);
        for _ in 0..400 {
            world.step();
            world.check();
        }
        world.ends_without_the_host();
    }
}

#[test]
fn whatever_is_refused_the_host_comes_to_what_no_spare_does() {
    let bounds = [unlimited(), BoundsWanted { background_workers_max: Some(2), ..BoundsWanted::default() }];
    for seed in 0..400 {
        let mut world = World::new(1 + seed as usize % 3, bounds[(seed / 3) as usize % 2], seed);
        for step in 0..400 {
            // Now and then it refuses more; or all of them, always.
            if step % 50 == 0 {
                world.refuses = if seed % 2 == 0 { 4 } else { 1 + world.below(4) };
            }
            world.step();
            world.check();
        }
        world.ends_without_spares();
    }
}
