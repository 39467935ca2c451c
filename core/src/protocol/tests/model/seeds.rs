//! Seeds: which histories a run tries, so that one that fails can be tried again.
//!
//! Each history has a seed of its own; a run counts up from its first. A failing history prints its seed, and
//! `URUK_SEED` makes that the first. `URUK_HISTORIES` says how many a long run tries.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// Leads `run` through histories until one panics, which is then shrunk and told with its seed.
///
/// Tries `usually` many, unless told otherwise; only one if a seed is given.
pub(in crate::protocol) fn try_histories<S: Strategy>(usually: u64, histories: &S, run: impl Fn(S::Value))
where
    S::Value: Debug,
{
    let seed = from_environment("URUK_SEED");
    let count = from_environment("URUK_HISTORIES").unwrap_or(if seed.is_some() { 1 } else { usually });
    let first = seed.unwrap_or_else(|| RandomState::new().hash_one(count));
    for seed in (0..count).map(|index| first.wrapping_add(index)) {
        let config = Config {
            cases: 1,
            max_shrink_iters: 20_000,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed),
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(histories, |history| {
            run(history);
            Ok::<(), TestCaseError>(())
        });
        if let Err(TestError::Fail(reason, history)) = outcome {
            panic!("{reason}\nafter the shrunk history\n{history:?}\nreplay with URUK_SEED={seed}");
        }
    }
}

fn from_environment(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_history_again() {
        let drawn = |seed| {
            let config = Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() };
            let any = proptest::collection::vec(0u32..1000, 8..9);
            any.new_tree(&mut TestRunner::new(config)).expect("nothing is rejected").current()
        };
        use proptest::strategy::ValueTree as _;
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
