//! Units that park their responsibilities, so that a case can finish them in its own order.

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    DependenceGroup, Dependency, Detached, JitDylib, LookupRequest, LookupResult, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, ResolvedResponsibility, SymbolFlagsMap, SymbolMap,
    SymbolName,
};

use crate::graph::Graph;
use crate::support::{Engine, definition, interface, one, set};

/// A unit that waits to be resolved and emitted, with its address and dependences.
struct Waiting {
    responsibility: Detached<MaterializationResponsibility>,
    address: SymbolMap,
    groups: Vec<DependenceGroup>,
}

/// The part that a unit leaves behind: its responsibility, and the token by which others depend on its symbol.
type Left = (Detached<MaterializationResponsibility>, Dependency);

/// One unit of one symbol for each node of a graph, none of them started.
pub(crate) struct Units {
    pub(crate) engine: Engine,
    pub(crate) names: Vec<SymbolName>,
    left: Arc<Mutex<Vec<Option<Left>>>>,
}

impl Units {
    pub(crate) fn new(engine: Engine, n: usize) -> Self {
        let names = engine.names(0, n);
        let left = Arc::new(Mutex::new((0..n).map(|_| None).collect()));
        Self { engine, names, left }
    }

    pub(crate) fn define(&self) {
        for (index, name) in self.names.iter().enumerate() {
            let unit = ParkingUnit { name: name.clone(), index, left: self.left.clone() };
            self.engine.main.define(Box::new(unit)).expect("names are distinct");
        }
    }

    /// A request for `names`, until they are Ready.
    pub(crate) fn request(&self, names: &[SymbolName]) -> LookupRequest {
        LookupRequest::new(self.engine.order.clone(), set(names))
    }

    /// Gathers the responsibilities, all of which a lookup must have started.
    pub(crate) fn park(&self, graph: &Graph) -> Parked {
        let left: Vec<Left> =
            self.left.lock().drain(..).map(|left| left.expect("the lookup started every unit")).collect();
        let tokens: Vec<Dependency> = left.iter().map(|(_, token)| *token).collect();
        let waiting = left.into_iter().zip(&graph.dependencies).enumerate().map(|(index, (left, on))| {
            let name = &self.names[index];
            let dependencies = on.iter().map(|&on| tokens[on]).collect();
            Some(Waiting {
                responsibility: left.0,
                address: one(name, definition(index)),
                groups: vec![DependenceGroup { symbols: vec![name.clone()], dependencies }],
            })
        });
        Parked(waiting.collect())
    }
}

/// The responsibilities of all units.
pub(crate) struct Parked(Vec<Option<Waiting>>);

impl Parked {
    /// Announces the addresses of a unit, without emitting it.
    pub(crate) fn resolve(&mut self, index: usize) -> ResolvedResponsibility {
        self.resolve_keeping_groups(index).0
    }

    /// Resolves and emits a unit.
    pub(crate) fn emit(&mut self, index: usize) {
        let (resolved, groups) = self.resolve_keeping_groups(index);
        resolved.notify_emitted(groups).unwrap_or_else(|refused| panic!("refused: {refused}"));
    }

    /// The data that [`Self::emit`] handles for each unit, without the engine: as much memory in the same places. The
    /// responsibilities themselves are dropped.
    pub(crate) fn into_luggage(self) -> Vec<Option<Luggage>> {
        let pack = |waiting: Option<Waiting>| {
            let Waiting { responsibility, address, groups } = waiting?;
            let responsibility = responsibility.attach();
            let covered = responsibility.symbols().clone();
            drop(responsibility);
            Some(Luggage { duty: Box::new(Duty { covered, instead: Default::default() }), address, groups })
        };
        self.0.into_iter().map(pack).collect()
    }

    fn resolve_keeping_groups(&mut self, index: usize) -> (ResolvedResponsibility, Vec<DependenceGroup>) {
        let waiting = self.0[index].take().expect("a unit is emitted once");
        let resolved = waiting
            .responsibility
            .attach()
            .notify_resolved(&waiting.address)
            .unwrap_or_else(|refused| panic!("refused: {refused}"));
        (resolved, waiting.groups)
    }
}

/// The data that any engine reads and drops when a unit is emitted.
pub(crate) struct Luggage {
    duty: Box<Duty>,
    address: SymbolMap,
    groups: Vec<DependenceGroup>,
}

/// A stand-in for the data behind a responsibility.
struct Duty {
    covered: SymbolFlagsMap,
    /// The rest of it.
    instead: [usize; DUTY_WORDS - size_of::<SymbolFlagsMap>() / size_of::<usize>()],
}

/// The memory of a unit in words, which becomes that of its responsibility.
const DUTY_WORDS: usize = 14;

impl Luggage {
    /// Looks at all of it, as an emission has to.
    pub(crate) fn look(&self) -> usize {
        let dependencies = |group: &DependenceGroup| group.symbols.len() + group.dependencies.len();
        let groups: usize = self.groups.iter().map(dependencies).sum();
        self.duty.instead.iter().sum::<usize>() + self.duty.covered.len() + self.address.len() + groups
    }
}

/// The answer of a lookup, if it has come.
#[derive(Clone, Default)]
pub(crate) struct Answer(Arc<Mutex<Option<bool>>>);

impl Answer {
    /// A handler that notes the answer.
    pub(crate) fn handler<E>(&self) -> impl FnOnce(Result<LookupResult, E>) + Send + 'static {
        let answer = self.0.clone();
        move |result| *answer.lock() = Some(result.is_ok())
    }

    /// `None` before the answer, then whether it was a good one.
    pub(crate) fn get(&self) -> Option<bool> {
        *self.0.lock()
    }
}

struct ParkingUnit {
    name: SymbolName,
    index: usize,
    left: Arc<Mutex<Vec<Option<Left>>>>,
}

impl MaterializationUnit for ParkingUnit {
    fn name(&self) -> &str {
        "parked"
    }

    fn interface(&self) -> MaterializationInterface {
        interface(&self.name)
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let token = responsibility.dependency(&self.name).expect("a unit covers its symbol");
        self.left.lock()[self.index] = Some((responsibility.detach(), token));
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
