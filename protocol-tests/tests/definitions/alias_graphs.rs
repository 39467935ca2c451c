//! Graphs of aliases: several aliases of a unit, across dylibs, through generators. They end, with an error exactly where there is a
//! cycle of aliases.
//!
//! A unit of aliases once asked for all its sources together and went on with all of them. Two units of which each has an
//! alias of an alias of the other then waited for each other for ever, though no alias led back to itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol_tests::on::{EVERYWHERE, On};
use protocol_tests::random::Random;
use protocol_tests::*;
use uruk_core::{
    AliasMap, AliasTarget, DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib,
    JitDylibLookupFlags, LookupError, LookupRequest, LookupSet, ReexportsGenerator, reexports, shared_error,
    symbol_aliases,
};

const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;

fn aliases(session: &ExecutionSession, pairs: &[(&str, &str)]) -> AliasMap {
    let target = |source: &str| AliasTarget { source: session.intern(source), flags: EXPORTED };
    pairs.iter().map(|(alias, source)| (session.intern(alias), target(source))).collect()
}

fn everywhere(scenario: impl Fn(On) + Copy + Send + 'static) {
    EVERYWHERE.into_iter().for_each(|on| within_reason(move || scenario(on)));
}

/// ```text
///   b.two ─▶ a.two ─▶ b.one ─▶ a.one, at a known address
/// ```
fn two_dylibs(on: On, exports: impl Fn(&JitDylib, &JitDylib)) {
    for names in [&["one", "two"][..], &["two"]] {
        let (session, a) = on.session();
        let b = session.create_jit_dylib("b").unwrap();
        define_absolute(&a, "one", 64);
        a.define(reexports(b.clone(), ALL, aliases(&session, &[("two", "one")]))).unwrap();
        exports(&a, &b);
        let found = session.lookup(LookupRequest::new(order(&b), set(&session, names))).unwrap();
        assert!(found.iter().all(|(_, definition)| definition.address.value() == 64), "{found:?}");
        session.close().unwrap();
    }
}

#[test]
fn two_units_that_name_each_others_aliases_are_found() {
    everywhere(|on| {
        two_dylibs(on, |a, b| {
            let pairs = [("one", "one"), ("two", "two")];
            b.define(reexports(a.clone(), ALL, aliases(a.session(), &pairs))).unwrap();
        });
    });
}

#[test]
fn a_generator_of_re_exports_makes_such_a_unit() {
    everywhere(|on| {
        two_dylibs(on, |a, b| {
            b.add_generator(Arc::new(ReexportsGenerator::new(a.clone(), ALL))).unwrap();
        });
    });
}

/// ```text
///   a3 ─▶ a2 ─▶ a1 ─▶ s        a1 and a3 are one unit
/// ```
#[test]
fn a_chain_may_lead_through_a_unit_twice() {
    everywhere(|on| {
        let (session, main) = on.session();
        define_simple(&main, "unit", &["s"]);
        main.define(symbol_aliases(aliases(&session, &[("a1", "s"), ("a3", "a2")]))).unwrap();
        main.define(symbol_aliases(aliases(&session, &[("a2", "a1")]))).unwrap();
        assert_eq!(
            session.lookup(LookupRequest::new(order(&main), set(&session, &["a1", "a3"]))).unwrap().len(),
            2
        );
        session.close().unwrap();
    });
}

/// The unit of one alias's source may need another alias of the same alias unit, as linkers do.
#[test]
fn a_source_may_need_the_alias_beside_its_own() {
    everywhere(|on| {
        let (session, main) = on.session();
        define_simple(&main, "unit", &["x"]);
        let needs = request(&main, &["first"]);
        let unit = TestUnit::new("y", exported(&session, &["y"]), move |responsibility| {
            let parked = responsibility.detach();
            let session = needs.order.as_slice()[0].0.session().clone();
            session.lookup_async(needs.until_resolved(), move |found| {
                found.unwrap();
                finish(parked.attach());
            });
        });
        main.define(unit.boxed()).unwrap();
        main.define(symbol_aliases(aliases(&session, &[("first", "x"), ("second", "y")]))).unwrap();
        assert_eq!(
            session
                .lookup(LookupRequest::new(order(&main), set(&session, &["first", "second"])))
                .unwrap()
                .len(),
            2
        );
        session.close().unwrap();
    });
}

/// Defines what it is asked for once its lookup is answered.
struct Needs(LookupRequest);

impl DefinitionGenerator for Needs {
    fn name(&self) -> &str {
        "needs"
    }

    fn generate(&self, request: GenerateRequest) {
        let (session, needs) = (request.session().clone(), self.0.clone());
        let parked = request.detach();
        session.lookup_async(needs, move |found| {
            found.unwrap();
            let request = parked.attach();
            request
                .symbols()
                .iter()
                .for_each(|(name, _)| define_absolute(request.dylib(), name.as_str(), 64));
            request.finish(Ok(()));
        });
    }
}

/// The source of one alias is there, and a generator is asked for that of the other; it needs the first alias.
#[test]
fn a_generator_may_need_the_alias_beside_the_one_it_is_asked_for() {
    everywhere(|on| {
        let (session, main) = on.session();
        let library = session.create_jit_dylib("library").unwrap();
        define_simple(&library, "unit", &["x"]);
        library.add_generator(Arc::new(Needs(request(&main, &["first"])))).unwrap();
        main.define(reexports(library, ALL, aliases(&session, &[("first", "x"), ("second", "y")]))).unwrap();
        assert_eq!(
            session
                .lookup(LookupRequest::new(order(&main), set(&session, &["first", "second"])))
                .unwrap()
                .len(),
            2
        );
        session.close().unwrap();
    });
}

#[test]
fn an_alias_of_what_fails_or_is_missing_takes_no_other_with_it() {
    everywhere(|on| {
        let (session, main) = on.session();
        let broken = |symbol: &str| {
            TestUnit::new("broken", exported(&session, &[symbol]), |responsibility| {
                responsibility.fail(shared_error("on purpose"));
            })
        };
        define_simple(&main, "unit", &["s"]);
        main.define(broken("x").boxed()).unwrap();
        let pairs = [("fine", "s"), ("broken", "x"), ("lost", "nowhere")];
        main.define(symbol_aliases(aliases(&session, &pairs))).unwrap();
        let answers = ["fine", "broken", "lost"].map(|name| look_up_later(&session, request(&main, &[name])));
        let [fine, broken, lost] = answers.map(|answer| answer.recv().unwrap());
        assert_eq!(fine.unwrap().len(), 1);
        assert!(broken.unwrap_err().in_full().ends_with("on purpose"));
        let lost = lost.unwrap_err().in_full();
        assert!(lost.ends_with("not found: `nowhere` (searched `main`)"), "{lost}");
        session.close().unwrap();
    });
}

#[test]
fn a_cycle_is_told_on_every_dispatcher_and_takes_nothing_beside_it_along() {
    everywhere(|on| {
        let (session, main) = on.session();
        define_simple(&main, "unit", &["s"]);
        main.define(symbol_aliases(aliases(&session, &[("a", "b"), ("fine", "s")]))).unwrap();
        main.define(symbol_aliases(aliases(&session, &[("b", "a"), ("other", "fine")]))).unwrap();
        let [fine, cyclic] =
            [&["fine", "other"], &["a", "b"]].map(|names| look_up_later(&session, request(&main, names)));
        assert_eq!(fine.recv().unwrap().unwrap().len(), 2);
        let told = cyclic.recv().unwrap().unwrap_err().in_full();
        let cycle = ["`a` -> `b` -> `a`", "`b` -> `a` -> `b`"];
        assert!(
            cycle.iter().any(|cycle| told.contains(&format!("aliases form a cycle: {cycle};"))),
            "{told}"
        );
        session.close().unwrap();
    });
}

/// A definition of a random graph: the dylib, and the name in it.
type Place = (usize, usize);

/// Where a chain of aliases leads.
fn end_of(aliases: &BTreeMap<Place, Place>, mut place: Place) -> Option<Place> {
    for _ in 0..=aliases.len() {
        match aliases.get(&place) {
            Some(&source) => place = source,
            None => return Some(place),
        }
    }
    None
}

fn name(index: usize) -> String {
    format!("s{index}")
}

const DYLIBS: usize = 3;
const NAMES: usize = 12;

/// The source of each alias, by place. In some graphs the source comes before the alias in a random order, so that there is no
/// cycle.
fn graph(numbers: &mut Random, acyclic: bool) -> BTreeMap<Place, Place> {
    let mut places: Vec<Place> = (0..DYLIBS * NAMES).map(|index| (index / NAMES, index % NAMES)).collect();
    for index in 1..places.len() {
        places.swap(index, numbers.below(index + 1));
    }
    let mut aliases = BTreeMap::new();
    for index in 1..places.len() {
        if numbers.below(8) > 0 {
            let sources = if acyclic { index } else { places.len() };
            aliases.insert(places[index], places[numbers.below(sources)]);
        }
    }
    aliases
}

/// Defines the graph: the aliases of a dylib for symbols of the same dylib in one unit, or two. Every symbol that is no alias has its
/// address from a unit. The last dylib re-exports what another has under its own name by a generator.
fn define_graph(numbers: &mut Random, dylibs: &[JitDylib], graph: &BTreeMap<Place, Place>) {
    let session = dylibs[0].session();
    let mut units: BTreeMap<(usize, usize, usize), AliasMap> = BTreeMap::new();
    for (&(dylib, alias), &(from, source)) in graph {
        let target = AliasTarget { source: session.intern(&name(source)), flags: EXPORTED };
        let unit = units.entry((dylib, from, numbers.below(2))).or_default();
        unit.insert(session.intern(&name(alias)), target);
    }
    for ((dylib, from, _), unit) in units {
        let unit =
            if dylib == from { symbol_aliases(unit) } else { reexports(dylibs[from].clone(), ALL, unit) };
        dylibs[dylib].define(unit).unwrap();
    }
    for (dylib, index) in (0..DYLIBS * NAMES).map(|index| (index / NAMES, index % NAMES)) {
        if !graph.contains_key(&(dylib, index)) {
            define_at(&dylibs[dylib], (dylib, index));
        }
    }
    let (facade, library) = (&dylibs[DYLIBS], &dylibs[numbers.below(DYLIBS)]);
    facade.add_generator(Arc::new(ReexportsGenerator::new(library.clone(), ALL))).unwrap();
}

fn address_of((dylib, index): Place) -> u64 {
    (16 * (1 + dylib * NAMES + index)) as u64
}

fn define_at(dylib: &JitDylib, place: Place) {
    let symbols = exported(dylib.session(), &[&name(place.1)]);
    let unit = TestUnit::new("source", symbols, move |responsibility| {
        let found = responsibility.symbols().keys().map(|name| (name.clone(), at(address_of(place))));
        let found = found.collect();
        responsibility.notify_resolved(&found).unwrap().notify_emitted(Vec::new()).unwrap();
    });
    dylib.define(unit.boxed()).unwrap();
}

fn random_graphs(seeds: std::ops::Range<u64>, acyclic: bool) {
    for (seed, on) in seeds.zip(EVERYWHERE.into_iter().cycle()) {
        within_reason(move || {
            let mut numbers = Random(seed);
            let graph = graph(&mut numbers, acyclic);
            let (session, main) = on.session();
            let other = |index| session.create_jit_dylib(&format!("dylib {index}")).unwrap();
            let mut dylibs = vec![main];
            dylibs.extend((1..=DYLIBS).map(other));
            define_graph(&mut numbers, &dylibs, &graph);
            // All of each dylib at once, by several threads; then each by itself.
            std::thread::scope(|scope| {
                for dylib in &dylibs {
                    scope.spawn(|| {
                        let names = LookupSet::required((0..NAMES).map(|index| session.intern(&name(index))));
                        let found = session.lookup(LookupRequest::new(order(dylib), names));
                        assert!(!acyclic || found.is_ok(), "seed {seed}: {found:?}");
                    });
                }
            });
            for place in (0..DYLIBS * NAMES).map(|index| (index / NAMES, index % NAMES)) {
                let found = session.lookup_symbol(&order(&dylibs[place.0]), &session.intern(&name(place.1)));
                match (found, end_of(&graph, place)) {
                    (Ok(found), Some(end)) => {
                        assert_eq!(found.address.value(), address_of(end), "seed {seed}")
                    }
                    (Err(LookupError::Failed(failure)), None) => {
                        let told = failure.in_full();
                        assert!(told.contains("aliases form a cycle: "), "seed {seed}: {told}");
                    }
                    (found, end) => panic!("seed {seed}: {place:?} is {found:?}, not {end:?}"),
                }
            }
            session.close().unwrap();
        });
    }
}

#[test]
fn random_graphs_without_a_cycle_are_found() {
    random_graphs(0..140, true);
}

#[test]
fn of_any_graph_exactly_what_leads_into_a_cycle_fails() {
    random_graphs(1_000..1_140, false);
}
