//! Random histories: after every step the ready path and the locked path give the same answer.
//!
//! A set with an absent, weakly referenced symbol cannot be answered without the lock, so it gives the locked path's answer.
//! Orders live as long as a history, so that their caches grow old.

use std::sync::Arc;

use proptest::prelude::*;
use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, ExecutorSymbolDef, GenerateRequest, GeneratorId, JitDylib,
    JitDylibLookupFlags, LookupError, LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolLookupFlags,
    SymbolName, absolute_symbols,
};

/// More than an order walks over.
const DYLIBS: usize = 24;
const NAMES: usize = 3;
const ORDERS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Define {
        dylib: usize,
        name: usize,
        exported: bool,
    },
    DefineFailing {
        dylib: usize,
        name: usize,
    },
    /// Looks a name up in one dylib.
    Touch {
        dylib: usize,
        name: usize,
    },
    Remove {
        dylib: usize,
        name: usize,
    },
    AddGenerator {
        dylib: usize,
    },
    RemoveGenerator {
        dylib: usize,
    },
    RemoveDylib {
        dylib: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (dylib, name) = (0..DYLIBS, 0..NAMES);
    prop_oneof![
        8 => (dylib.clone(), name.clone(), prop::bool::weighted(0.8))
            .prop_map(|(dylib, name, exported)| Step::Define { dylib, name, exported }),
        1 => (dylib.clone(), name.clone()).prop_map(|(dylib, name)| Step::DefineFailing { dylib, name }),
        16 => (dylib.clone(), name.clone()).prop_map(|(dylib, name)| Step::Touch { dylib, name }),
        4 => (dylib.clone(), name).prop_map(|(dylib, name)| Step::Remove { dylib, name }),
        1 => dylib.clone().prop_map(|dylib| Step::AddGenerator { dylib }),
        1 => dylib.clone().prop_map(|dylib| Step::RemoveGenerator { dylib }),
        1 => dylib.prop_map(|dylib| Step::RemoveDylib { dylib }),
    ]
}

/// Dylibs by number, some of them twice, each with a flag: all of its symbols, or exported ones only.
fn order_of() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop_oneof![
        prop::collection::vec((0..DYLIBS, any::<bool>()), 1..6),
        prop::collection::vec((0..DYLIBS, any::<bool>()), 9..30),
    ]
}

/// Defines the first of the names, wherever it is asked for it.
struct DefinesTheFirst;

impl DefinitionGenerator for DefinesTheFirst {
    fn name(&self) -> &str {
        "defines the first"
    }

    fn generate(&self, request: GenerateRequest) {
        if let Some((name, _)) = request.symbols().iter().find(|(name, _)| name.as_str() == "s0") {
            let symbols = [(name.clone(), at(0x5000))].into_iter().collect();
            request.dylib().define(absolute_symbols(symbols)).unwrap();
        }
        request.finish(Ok(()));
    }
}

struct Scene {
    session: ExecutionSession,
    dylibs: Vec<JitDylib>,
    names: Vec<SymbolName>,
    absent: SymbolName,
    generators: Vec<(usize, GeneratorId)>,
    steps: u64,
}

impl Scene {
    fn new() -> Self {
        let session = ExecutionSession::builder().error_reporter(Arc::new(|_| {})).build();
        let create = |index| session.create_jit_dylib(&format!("d{index}")).unwrap();
        let dylibs = (0..DYLIBS).map(create).collect();
        let names = (0..NAMES).map(|index| session.intern(&format!("s{index}"))).collect();
        let absent = session.intern("absent");
        Self { session, dylibs, names, absent, generators: Vec::new(), steps: 0 }
    }

    fn order(&self, dylibs: &[(usize, bool)]) -> SearchOrder {
        let flags = |all| match all {
            true => JitDylibLookupFlags::MatchAllSymbols,
            false => JitDylibLookupFlags::MatchExportedSymbolsOnly,
        };
        dylibs.iter().map(|&(dylib, all)| (self.dylibs[dylib].clone(), flags(all))).collect()
    }

    /// A step that is impossible, such as defining a name twice, is skipped.
    fn take(&mut self, step: Step) {
        self.steps += 1;
        match step {
            Step::Define { dylib, name, exported } => {
                let flags = if exported { EXPORTED } else { SymbolFlags::empty() };
                let symbol = ExecutorSymbolDef { flags, ..at(self.steps) };
                let symbols = [(self.names[name].clone(), symbol)].into_iter().collect();
                let _ = self.dylibs[dylib].define(absolute_symbols(symbols));
            }
            Step::DefineFailing { dylib, name } => {
                let symbols = exported(&self.session, &[self.names[name].as_str()]);
                let _ = self.dylibs[dylib].define(TestUnit::new("failing", symbols, drop).boxed());
            }
            Step::Touch { dylib, name } => {
                let _ = self.session.lookup_symbol(&order(&self.dylibs[dylib]), &self.names[name]);
            }
            Step::Remove { dylib, name } => {
                let _ = self.dylibs[dylib].remove(&self.names[name..=name]);
            }
            Step::AddGenerator { dylib } => {
                let added = self.dylibs[dylib].add_generator(Arc::new(DefinesTheFirst));
                self.generators.extend(added.map(|generator| (dylib, generator)));
            }
            Step::RemoveGenerator { dylib } => {
                if let Some(index) = self.generators.iter().position(|&(of, _)| of == dylib) {
                    let (_, generator) = self.generators.swap_remove(index);
                    self.dylibs[dylib].remove_generator(generator);
                }
            }
            Step::RemoveDylib { dylib } => {
                self.generators.retain(|&(of, _)| of != dylib);
                self.session.remove_jit_dylib(&self.dylibs[dylib]).unwrap();
            }
        }
    }

    fn agree(&self, order: &SearchOrder) -> Result<(), TestCaseError> {
        for name in &self.names {
            let ready = self.session.lookup_symbol(order, name);
            let mut symbols = LookupSet::one(name.clone());
            symbols.add(self.absent.clone(), SymbolLookupFlags::WeaklyReferencedSymbol);
            let locked = self.session.lookup(LookupRequest::new(order, symbols)).map(|found| found[name]);
            prop_assert_eq!(short(&ready), short(&locked), "`{}` along {:?}", name, order);
            let again = self.session.lookup_symbol(order, name);
            prop_assert_eq!(short(&again), short(&locked), "`{}` along {:?}", name, order);
        }
        Ok(())
    }
}

/// The definition, or the kind of error.
fn short(answer: &Result<ExecutorSymbolDef, LookupError>) -> String {
    match answer {
        Ok(definition) => format!("{definition:?}"),
        Err(LookupError::NotFound { .. }) => "not found".into(),
        Err(LookupError::Failed(_)) => "failed".into(),
        Err(LookupError::DylibRemoved { .. }) => "removed".into(),
        Err(error) => format!("{error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_ready_path_answers_as_the_locked_path(
        orders in prop::collection::vec(order_of(), ORDERS),
        steps in prop::collection::vec((step(), 0..ORDERS), 1..120),
    ) {
        let mut scene = Scene::new();
        let orders: Vec<_> = orders.iter().map(|dylibs| scene.order(dylibs)).collect();
        for (step, order) in steps {
            scene.take(step);
            scene.agree(&orders[order])?;
        }
    }
}
