//! A naive model of readiness, and the driver that leads the forest and the model through one history.

use crate::protocol::dependences::*;

/// One step of a history. Bytes choose among the names.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Emits groups of `(members, dependencies)`.
    Emit(Vec<(Vec<u8>, Vec<u8>)>),
    /// Fails what is not Ready.
    Fail(u8),
    /// Makes a new symbol under the name of one that settled.
    Redefine(u8),
    /// Gives an unemitted symbol a node, as a dependant that fails afterwards would leave it.
    Depend(u8),
    /// A slice of work.
    Advance(usize),
    /// All work.
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unemitted,
    Waiters(usize),
    Ready,
    Failed,
}

/// The definition, computed from scratch after every step.
#[derive(Debug, Default)]
struct Model {
    states: Vec<State>,
    /// Members and dependencies of every group ever emitted.
    groups: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Model {
    fn fail(&mut self, symbol: usize) {
        let mut work = vec![symbol];
        while let Some(symbol) = work.pop() {
            if matches!(self.states[symbol], State::Ready | State::Failed) {
                continue;
            }
            self.states[symbol] = State::Failed;
            for (members, dependencies) in &self.groups {
                if dependencies.contains(&symbol) {
                    work.extend(members);
                }
            }
        }
    }

    /// Ready is the largest set of groups whose dependencies are all Ready or in the set.
    fn settle(&mut self) {
        let mut ready: Vec<bool> = vec![true; self.groups.len()];
        loop {
            let before = ready.clone();
            for (group, (_, dependencies)) in self.groups.iter().enumerate() {
                ready[group] &= dependencies.iter().all(|&dependency| match self.states[dependency] {
                    State::Ready => true,
                    State::Waiters(other) => before[other],
                    State::Unemitted | State::Failed => false,
                });
            }
            if ready == before {
                break;
            }
        }
        for state in &mut self.states {
            if let State::Waiters(group) = *state
                && ready[group]
            {
                *state = State::Ready;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Symbol {
    node: Option<NodeId>,
    reported: Option<State>,
}

/// Plays the session: rows with nodes, and what was reported for them.
#[derive(Debug)]
pub(super) struct History {
    forest: WaitingForest<usize>,
    model: Model,
    symbols: Vec<Symbol>,
    /// The newest symbol of each name.
    current: Vec<usize>,
}

impl History {
    /// With a forest whose way up to a root may be interrupted after so many steps.
    pub(super) fn new(names: usize, steps_up_min: usize) -> Self {
        let mut history = Self {
            forest: WaitingForest::going_up(steps_up_min),
            model: Model::default(),
            symbols: Vec::new(),
            current: Vec::new(),
        };
        for _ in 0..names {
            let symbol = history.define();
            history.current.push(symbol);
        }
        history
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Emit(groups) => self.emit(groups),
            Step::Fail(name) => self.fail(self.symbol(*name)),
            Step::Redefine(name) => {
                if self.symbols[self.symbol(*name)].reported.is_some() {
                    let index = usize::from(*name) % self.current.len();
                    self.current[index] = self.define();
                }
            }
            Step::Depend(name) => {
                let symbol = self.symbol(*name);
                if self.model.states[symbol] == State::Unemitted {
                    self.node_of(symbol);
                }
            }
            Step::Advance(budget) => {
                let mut settled = Vec::new();
                self.forest.advance(*budget, &mut settled);
                self.record(&settled);
            }
            Step::Drain => self.drain(),
        }
        self.forest.check();
    }

    /// Fails what is left, after which nothing may be left.
    pub(super) fn finish(&mut self) {
        self.drain();
        for symbol in 0..self.symbols.len() {
            self.fail(symbol);
        }
        self.drain();
        assert!(self.forest.is_empty());
    }

    fn define(&mut self) -> usize {
        self.symbols.push(Symbol::default());
        self.model.states.push(State::Unemitted);
        self.symbols.len() - 1
    }

    fn symbol(&self, name: u8) -> usize {
        self.current[usize::from(name) % self.current.len()]
    }

    fn emit(&mut self, groups: &[(Vec<u8>, Vec<u8>)]) {
        let mut emitted = Vec::new();
        let mut taken = Vec::new();
        for (members, dependencies) in groups {
            let mut group: Vec<usize> = members.iter().map(|&name| self.symbol(name)).collect();
            group.sort_unstable();
            group.dedup();
            group.retain(|&member| self.model.states[member] == State::Unemitted && !taken.contains(&member));
            taken.extend(&group);
            let dependencies: Vec<usize> = dependencies.iter().map(|&name| self.symbol(name)).collect();
            if !group.is_empty() {
                emitted.push((group, dependencies));
            }
        }
        // Dependencies of all groups first: those inside the emission are unemitted as yet.
        let emitted: Vec<_> = emitted
            .into_iter()
            .map(|(group, dependencies)| {
                let nodes: Vec<_> = dependencies
                    .into_iter()
                    .filter_map(|symbol| Some((symbol, self.node_of(symbol)?)))
                    .collect();
                (group, nodes)
            })
            .collect();
        for (group, dependencies) in &emitted {
            self.emit_group(group, dependencies);
        }
        for (group, dependencies) in emitted {
            let failed = dependencies.iter().any(|&(symbol, _)| self.model.states[symbol] == State::Failed);
            if failed {
                group.into_iter().for_each(|member| self.model.fail(member));
            }
        }
        self.model.settle();
    }

    fn emit_group(&mut self, group: &[usize], dependencies: &[(usize, NodeId)]) {
        let index = self.model.groups.len();
        let symbols = dependencies.iter().map(|&(symbol, _)| symbol).collect();
        self.model.groups.push((group.to_vec(), symbols));
        group.iter().for_each(|&member| self.model.states[member] = State::Waiters(index));
        let nodes: Vec<_> = dependencies.iter().map(|&(_, node)| node).collect();
        let waits = nodes.iter().any(|&node| self.forest.state(node) != NodeState::Gone);
        let mut members = Vec::new();
        for &member in group {
            let symbol = &mut self.symbols[member];
            if waits && symbol.node.is_none() {
                symbol.node = Some(self.forest.add(member));
            }
            match symbol.node {
                Some(node) => members.push(node),
                // It has no node, and it waits for nothing.
                None => symbol.reported = Some(State::Ready),
            }
        }
        self.forest.emit(&members, &nodes);
    }

    /// The node to depend on: made at need, or none where the session would not have one to offer.
    fn node_of(&mut self, index: usize) -> Option<NodeId> {
        let symbol = &mut self.symbols[index];
        if symbol.reported == Some(State::Failed) {
            return None;
        }
        if symbol.node.is_none() && self.model.states[index] == State::Unemitted {
            symbol.node = Some(self.forest.add(index));
        }
        symbol.node
    }

    fn fail(&mut self, symbol: usize) {
        match self.model.states[symbol] {
            State::Unemitted | State::Waiters(_) => {}
            State::Ready | State::Failed => return,
        }
        if let Some(node) = self.symbols[symbol].node {
            assert!(self.forest.fail(node));
        } else {
            self.symbols[symbol].reported = Some(State::Failed);
        }
        self.model.fail(symbol);
        self.model.settle();
    }

    fn drain(&mut self) {
        let mut settled = Vec::new();
        while self.forest.advance(3, &mut settled) {
            self.forest.check();
        }
        self.record(&settled);
        for (index, symbol) in self.symbols.iter().enumerate() {
            let expected = match self.model.states[index] {
                State::Unemitted | State::Waiters(_) => None,
                settled => Some(settled),
            };
            assert_eq!(symbol.reported, expected, "symbol {index}");
        }
    }

    fn record(&mut self, settled: &[Settled<usize>]) {
        for settled in settled {
            match *settled {
                Settled::Ready(symbol) => self.report(symbol, State::Ready),
                Settled::Failed { payload, via } => {
                    if let Some(via) = via {
                        self.check_via(payload, via);
                    }
                    self.report(payload, State::Failed);
                }
            }
        }
    }

    /// A failure comes through something that failed before and that the group really depends on.
    fn check_via(&self, failed: usize, via: usize) {
        assert_eq!(self.symbols[via].reported, Some(State::Failed));
        let depends = |(members, dependencies): &(Vec<usize>, Vec<usize>)| {
            members.contains(&failed) && dependencies.contains(&via)
        };
        assert!(self.model.groups.iter().any(depends));
    }

    fn report(&mut self, symbol: usize, state: State) {
        assert_eq!(self.symbols[symbol].reported.replace(state), None, "a symbol settles once");
    }
}
