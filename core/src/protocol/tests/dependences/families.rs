//! Shapes on which naive algorithms are quadratic. The bound is on the work counted, not on time.

use super::{drain, nodes};
use crate::protocol::dependences::*;

/// Single-symbol groups by number, with nodes made for the first dependant.
struct Symbols {
    forest: WaitingForest<usize>,
    nodes: Vec<Option<NodeId>>,
    emitted: Vec<bool>,
    ready: usize,
}

impl Symbols {
    fn new(count: usize) -> Self {
        Self { forest: WaitingForest::new(), nodes: vec![None; count], emitted: vec![false; count], ready: 0 }
    }

    /// Emits a symbol; dependencies that are neither emitted nor have a node yet get one.
    fn emit(&mut self, symbol: usize, dependencies: impl IntoIterator<Item = usize>) {
        let nodes: Vec<_> = dependencies
            .into_iter()
            .filter_map(|dependency| {
                if self.nodes[dependency].is_none() && !self.emitted[dependency] {
                    self.nodes[dependency] = Some(self.forest.add(dependency));
                }
                self.nodes[dependency]
            })
            .collect();
        self.emitted[symbol] = true;
        let waits = nodes.iter().any(|&node| self.forest.state(node) != NodeState::Gone);
        if waits && self.nodes[symbol].is_none() {
            self.nodes[symbol] = Some(self.forest.add(symbol));
        }
        match self.nodes[symbol] {
            Some(node) => self.forest.emit(&[node], &nodes),
            // It has no node, and it waits for nothing.
            None => self.ready += 1,
        }
        self.ready += drain(&mut self.forest).len();
    }

    /// Everything is Ready; no edge was visited more than twice, and roots were near.
    fn finish(self, steps_per_edge_max: f64) {
        assert_eq!(self.ready, self.nodes.len(), "every symbol is Ready");
        assert!(self.forest.is_empty());
        let Counters { edges, edge_visits, parent_steps, contraction_steps, .. } = self.forest.counters();
        assert!(edge_visits <= 2 * edges, "{edge_visits} visits of {edges} edges");
        assert!(contraction_steps <= self.nodes.len() as u64, "a contraction step is a component less");
        let steps = parent_steps as f64 / edges.max(1) as f64;
        assert!(steps <= steps_per_edge_max, "{steps} steps an edge");
    }
}

const N: usize = 20_000;

#[test]
fn chain_head_first() {
    let mut symbols = Symbols::new(N);
    for symbol in 0..N {
        symbols.emit(symbol, (symbol + 1 < N).then_some(symbol + 1));
    }
    symbols.finish(1.0);
}

#[test]
fn chain_tail_first_stores_no_edge() {
    let mut symbols = Symbols::new(N);
    for symbol in (0..N).rev() {
        symbols.emit(symbol, (symbol + 1 < N).then_some(symbol + 1));
    }
    assert_eq!(symbols.forest.counters(), Counters::default());
    symbols.finish(0.0);
}

#[test]
fn ring() {
    let mut symbols = Symbols::new(N);
    for symbol in 0..N {
        symbols.emit(symbol, [(symbol + 1) % N]);
    }
    symbols.finish(2.0);
}

#[test]
fn fan_in_and_fan_out() {
    let mut symbols = Symbols::new(N);
    symbols.emit(0, 1..N);
    (1..N).for_each(|symbol| symbols.emit(symbol, []));
    symbols.finish(1.0);

    let mut symbols = Symbols::new(N);
    (1..N).for_each(|symbol| symbols.emit(symbol, [0]));
    symbols.emit(0, []);
    symbols.finish(1.0);
}

/// The root changes under a long trunk, again and again, and each time a node at the top asks for it.
/// Compressing whole paths leaves every hint on the trunk pointing at a root that is gone, and the next
/// question walks all of it.
#[test]
fn long_trunk_whose_bottom_rehangs() {
    let (trunk, roots) = (16_000, 4_000);
    for top in [|_| 0, |random: usize| random % 16_000] {
        let mut random = xorshift(7);
        let mut symbols = Symbols::new(trunk + 2 * roots);
        // The bottom of the trunk waits for one root after the other; newcomers hang at the top.
        symbols.emit(trunk - 1, trunk..trunk + roots);
        (0..trunk - 1).rev().for_each(|symbol| symbols.emit(symbol, [symbol + 1]));
        for root in 0..roots {
            symbols.emit(trunk + roots + root, [top(random())]);
            symbols.emit(trunk + root, []);
        }
        symbols.finish(4.0);
    }
}

/// The trunk grows at its root, and newcomers hang at its top after each change.
#[test]
fn growing_trunk_with_newcomers_at_the_top() {
    let length = 16_384;
    let mut symbols = Symbols::new(2 * length);
    for symbol in 0..length {
        symbols.emit(symbol, (symbol + 1 < length).then_some(symbol + 1));
        symbols.emit(length + symbol, [0]);
    }
    symbols.finish(8.0);
}

/// Rungs are cycles of two; the rails tie them into one cycle, closed by the last emission.
#[test]
fn ladder_of_cycles() {
    let rungs = 10_000;
    let mut symbols = Symbols::new(2 * rungs);
    for rung in 0..rungs {
        let (left, right) = (2 * rung, 2 * rung + 1);
        symbols.emit(left, [right, (left + 2) % (2 * rungs)]);
        symbols.emit(right, [left, (right + 2) % (2 * rungs)]);
    }
    symbols.finish(8.0);
}

/// The same ladder upside down: the bottom rungs are emitted last.
#[test]
fn ladder_of_cycles_backwards() {
    let rungs = 10_000;
    let mut symbols = Symbols::new(2 * rungs);
    for rung in (0..rungs).rev() {
        let (left, right) = (2 * rung, 2 * rung + 1);
        symbols.emit(right, [(right + 2) % (2 * rungs), left]);
        symbols.emit(left, [(left + 2) % (2 * rungs), right]);
    }
    symbols.finish(8.0);
}

/// Cycles inside cycles: each doubling of the distance closes another layer.
#[test]
fn nested_cycles() {
    let count = 1 << 14;
    let mut symbols = Symbols::new(count);
    for symbol in 0..count {
        let back = symbol & (symbol + 1).wrapping_neg() & (count - 1);
        symbols.emit(symbol, [(symbol + 1) % count, back]);
    }
    symbols.finish(8.0);
}

#[test]
fn random_orders() {
    for seed in 1..4 {
        let mut random = xorshift(seed);
        let mut order: Vec<usize> = (0..N).collect();
        for index in (1..N).rev() {
            order.swap(index, random() % (index + 1));
        }
        // Dependencies on smaller numbers only, and, in the odd rounds, on any.
        let mut symbols = Symbols::new(N);
        let graph: Vec<[usize; 4]> = (0..N)
            .map(|symbol| std::array::from_fn(|_| random() % if seed % 2 == 0 { symbol.max(1) } else { N }))
            .collect();
        for &symbol in &order {
            symbols.emit(symbol, graph[symbol]);
        }
        symbols.finish(8.0);
    }
}

#[test]
fn a_failure_at_the_end_of_a_long_chain_fells_all_of_it_in_slices() {
    let mut symbols = Symbols::new(N);
    for symbol in 0..N - 1 {
        symbols.emit(symbol, [symbol + 1]);
    }
    assert!(symbols.forest.fail(symbols.nodes[N - 1].unwrap()));
    let (mut settled, mut slices) = (Vec::new(), 1);
    while symbols.forest.advance(100, &mut settled) {
        slices += 1;
        assert!(settled.len() <= slices * 100, "a slice keeps to its budget");
    }
    let expected = (0..N)
        .rev()
        .map(|payload| Settled::Failed { payload, via: (payload + 1 < N).then_some(payload + 1) });
    assert!(settled.into_iter().eq(expected));
    assert!(symbols.forest.is_empty());
    let Counters { edges, failure_steps, .. } = symbols.forest.counters();
    assert!(failure_steps <= 3 * edges);
}

/// All of them fail, and the group falls with the first.
#[test]
fn a_group_that_depends_on_many_failures_is_walked_once() {
    let mut forest = WaitingForest::new();
    let group: Vec<_> = (0..N / 10).map(|symbol| forest.add(symbol)).collect();
    let needs: Vec<_> = (0..N / 10).map(|symbol| forest.add(symbol)).collect();
    forest.emit(&group, &needs);
    needs.iter().for_each(|&need| assert!(forest.fail(need)));
    assert_eq!(drain(&mut forest).len(), group.len() + needs.len());
    assert!(forest.is_empty());
    let Counters { failure_steps, .. } = forest.counters();
    assert!(failure_steps <= 3 * N as u64 / 10, "{failure_steps} steps");
}

/// It hung on the last of its dependencies to become Ready: all others are explored at once, in slices.
#[test]
fn many_edges_are_explored_in_slices() {
    let mut forest = WaitingForest::new();
    let needs: Vec<_> = (0..N).map(|symbol| forest.add(symbol)).collect();
    let [waiting] = nodes(&mut forest, [N]);
    forest.emit(&[waiting], &needs);
    assert_eq!(drain(&mut forest), []);
    let (last, others) = needs.split_last().unwrap();
    others.iter().for_each(|&need| forest.emit(&[need], &[]));
    assert_eq!(drain(&mut forest).len(), N - 1);
    forest.emit(&[*last], &[]);
    let (mut settled, mut slices) = (Vec::new(), 1);
    while forest.advance(64, &mut settled) {
        slices += 1;
    }
    assert!(slices >= N / 64, "{slices} slices for {N} edges");
    assert_eq!(settled, [Settled::Ready(N - 1), Settled::Ready(N)]);
}

#[test]
fn a_long_cycle_closes_and_is_released_in_slices() {
    let mut forest = WaitingForest::new();
    let nodes: Vec<_> = (0..N).map(|symbol| forest.add(symbol)).collect();
    for symbol in 0..N {
        forest.emit(&[nodes[symbol]], &[nodes[(symbol + 1) % N]]);
    }
    let (mut settled, mut slices) = (Vec::new(), 1);
    while forest.advance(64, &mut settled) {
        slices += 1;
        assert!(settled.len() <= slices * 64, "a slice keeps to its budget");
    }
    assert!(slices > N / 64);
    assert_eq!(settled.len(), N);
    assert!(forest.is_empty());
}

fn xorshift(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 1) as usize
    }
}
