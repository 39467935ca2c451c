//! Shadow: a lookup finds Ready symbols of a later dylib while others appear in an earlier one.
//!
//! ```text
//!  changer, under the session lock                   reader, without it
//!    define x and y in `first`, or add a               gate ─ record of x ─ record of y ─ gate
//!      generator to it: gate closes, opens               along `first`, `second`, where both are Ready
//! ```
//!
//! Proven, in every order with at most three preemptions (I13): a lookup of both names is told both definitions of `second`, or
//! both of `first`; a thread that knows that the change has returned is told those of `first`; a thread that reads a link order
//! after its replacement follows the new one.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `shadow::keeps_the_record`: a definition that appears is not recorded | `core/src/ready_index.rs` | `a_definition_that_appears_in_an_earlier_dylib_wins` |
//! | `shadow::tells_nobody_of_generators`: a generator is added, and readers do not give up | `core/src/ready_index.rs` | `a_generator_that_appears_in_an_earlier_dylib_is_asked` |
//! | `shadow::counts_no_change`: orders believe what they remember of their dylibs | `core/src/ready_index.rs` | `a_generator_that_appears_in_an_earlier_dylib_is_asked` |
//! | `shadow::keeps_the_link_order`: a link order is not replaced | `core/src/protocol/state/definitions/dylib.rs` | `a_link_order_that_was_replaced_is_followed` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, model_within};
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    DefinitionGenerator, ExecutorAddr, ExecutorSymbolDef, GenerateRequest, JitDylib, JitDylibLookupFlags,
    LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolName, absolute_symbols,
};

const PREEMPTIONS: usize = 3;
const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// Two dylibs; both names are Ready in the second.
struct Scene {
    stage: Arc<Stage>,
    second: JitDylib,
    order: SearchOrder,
    names: [SymbolName; 2],
    changed: AtomicBool,
}

impl Scene {
    fn new() -> Arc<Self> {
        let stage = Stage::new();
        let second = stage.session.create_jit_dylib("second").expect("it is new");
        let all = JitDylibLookupFlags::MatchAllSymbols;
        let order = [(stage.dylib.clone(), all), (second.clone(), all)].into();
        let names = ["x", "y"].map(|name| stage.session.intern(name));
        define(&second, &names, SECOND);
        let scene = Self { stage, second, order, names, changed: AtomicBool::new(false) };
        assert_eq!(scene.both(), [SECOND; 2]);
        Arc::new(scene)
    }

    /// The answer to one lookup of both names.
    fn both(&self) -> [u64; 2] {
        let set = LookupSet::required(self.names.iter().cloned());
        let found =
            self.stage.session.lookup(LookupRequest::new(&self.order, set)).expect("they are never missing");
        [0, 1].map(|index| found[&self.names[index]].address.value())
    }

    /// Looks both up beside `change`.
    fn read_beside(self: Arc<Self>, change: impl FnOnce(&Self) + Send + 'static) {
        let changer = thread::spawn({
            let scene = self.clone();
            move || {
                change(&scene);
                scene.changed.store(true, Ordering::Release);
                assert_eq!(scene.both(), [FIRST; 2], "who has changed it sees the change");
            }
        });
        let knows = self.changed.load(Ordering::Acquire);
        let told = self.both();
        assert!(told == [FIRST; 2] || (told == [SECOND; 2] && !knows), "told {told:?}, knew: {knows}");
        changer.join().expect("no panic");
    }
}

/// Defines names at an address.
fn define(dylib: &JitDylib, names: &[SymbolName], address: u64) {
    let at = ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED);
    let symbols = names.iter().map(|name| (name.clone(), at)).collect();
    dylib.define(absolute_symbols(symbols)).expect("the names are free");
}

#[test]
fn a_definition_that_appears_in_an_earlier_dylib_wins() {
    model_within(PREEMPTIONS, || {
        Scene::new().read_beside(|scene| define(&scene.stage.dylib, &scene.names, FIRST));
    });
}

#[test]
fn a_generator_that_appears_in_an_earlier_dylib_is_asked() {
    struct Defines;
    impl DefinitionGenerator for Defines {
        fn name(&self) -> &str {
            "defines"
        }
        fn generate(&self, request: GenerateRequest) {
            let names: Vec<_> = request.symbols().iter().map(|(name, _)| name.clone()).collect();
            define(request.dylib(), &names, FIRST);
            request.finish(Ok(()));
        }
    }
    model_within(PREEMPTIONS - 1, || {
        Scene::new().read_beside(|scene| {
            scene.stage.dylib.add_generator(Arc::new(Defines)).expect("the dylib is there");
        });
    });
}

#[test]
fn a_link_order_that_was_replaced_is_followed() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        define(&scene.stage.dylib, &scene.names, FIRST);
        let program = scene.stage.session.create_jit_dylib("program").expect("it is new");
        let second_only: SearchOrder = scene.order.iter().skip(1).cloned().collect();
        program.set_link_order(second_only).expect("its dylibs are there");
        let changer = thread::spawn({
            let (scene, program) = (scene.clone(), program.clone());
            move || {
                program.set_link_order(scene.order.clone()).expect("its dylibs are there");
                scene.changed.store(true, Ordering::Release);
            }
        });
        let knows = scene.changed.load(Ordering::Acquire);
        let order = program.link_order();
        let found = scene.stage.session.lookup_symbol(&order, &scene.names[0]).expect("it is in both");
        let expected = if order.len() == 2 { FIRST } else { SECOND };
        assert_eq!(found.address.value(), expected);
        assert!(order.len() == 2 || !knows);
        changer.join().expect("no panic");
        assert!(scene.second.link_order().len() == 1);
    });
}

loom_tests::catches_its_weakenings!();
