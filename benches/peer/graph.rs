//! The shapes of dependence graphs, and the orders in which units are emitted.

use crate::harness::SplitMix64;

/// A graph of units and the order of their emission.
pub(crate) struct Graph {
    /// For each unit, those it depends on.
    pub(crate) dependencies: Vec<Vec<usize>>,
    pub(crate) order: Vec<usize>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.dependencies.len()
    }

    /// Each unit depends on the next one; head first.
    pub(crate) fn chain(n: usize) -> Self {
        let dependencies = (1..n).map(|next| vec![next]).chain([Vec::new()]).collect();
        Self { dependencies, order: (0..n).collect() }
    }

    /// The same, tail first.
    pub(crate) fn chain_tail_first(n: usize) -> Self {
        let mut chain = Self::chain(n);
        chain.order.reverse();
        chain
    }

    /// A chain whose last unit depends on the first.
    pub(crate) fn ring(n: usize) -> Self {
        let mut ring = Self::chain(n);
        ring.dependencies[n - 1] = vec![0];
        ring
    }

    /// The first unit depends on all others and is emitted first.
    pub(crate) fn fan_in(n: usize) -> Self {
        let mut dependencies = vec![Vec::new(); n];
        dependencies[0] = (1..n).collect();
        Self { dependencies, order: (0..n).collect() }
    }

    /// All others depend on the first unit, which is emitted last.
    pub(crate) fn fan_out(n: usize) -> Self {
        let mut dependencies = vec![vec![0]; n];
        dependencies[0].clear();
        Self { dependencies, order: (1..n).chain([0]).collect() }
    }

    /// Each unit depends on up to four earlier ones; each is emitted after what it depends on.
    pub(crate) fn random_topological(n: usize) -> Self {
        let mut random = SplitMix64(42);
        let draw = |unit| {
            let mut drawn: Vec<usize> =
                if unit == 0 { Vec::new() } else { (0..4).map(|_| random.below(unit)).collect() };
            drawn.sort_unstable();
            drawn.dedup();
            drawn
        };
        Self { dependencies: (0..n).map(draw).collect(), order: (0..n).collect() }
    }

    /// The same, emitted in random order.
    pub(crate) fn random_shuffled(n: usize) -> Self {
        let mut graph = Self::random_topological(n);
        graph.shuffle(43);
        graph
    }

    /// Emits in another order.
    pub(crate) fn shuffle(&mut self, seed: u64) {
        let mut random = SplitMix64(seed);
        for at in (1..self.order.len()).rev() {
            self.order.swap(at, random.below(at + 1));
        }
    }
}
