//! A storm: many threads call many functions, while others redefine them, remove them and add them anew. A function that is called
//! often gets a better body.
//!
//! A body gives its function's number, its generation, and whether it is the better one. What a call gives is a generation that was
//! defined, at the latest, when the call began, and whose definition had begun before it ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{
    AliasMap, AliasTarget, ExecutorAddr, SharedError, SymbolFlags, SymbolName, WeakResourceTracker,
};
use uruk::pipeline::lazy::LazyCallThroughManager;
use uruk::pipeline::linking::ObjectLinkingLayer;
use uruk::pipeline::tiers::{CallCounting, Improve, Tiers};
use uruk::{Function, Jit, JitError, OwnedTracker, Scope};

use crate::redefine::{Answer, add_unit, gives};
use crate::support::engine;

/// How much goes on, at least.
struct Size {
    functions: usize,
    callers: usize,
    redefiners: usize,
    /// How often each redefiner redefines.
    redefinitions: u64,
    /// How many functions are promoted.
    promotions: u64,
    until: Option<Instant>,
}

/// One function.
#[derive(Default)]
struct Defined {
    /// The generation that calls reach at least.
    reached: AtomicI32,
    /// The last one whose definition has begun.
    begun: AtomicI32,
    /// Of the body; of the stub, if that comes and goes. Held while the function is redefined.
    trackers: Mutex<(Option<OwnedTracker>, Option<OwnedTracker>)>,
}

struct Storm {
    better: Arc<Better>,
    /// Makes stubs that count calls.
    lazy: LazyCallThroughManager,
    jit: Arc<Jit>,
    bodies: Scope,
    functions: Vec<Defined>,
    ends: AtomicBool,
    calls: AtomicU64,
}

/// A compiler that does more for a function when it is asked again.
struct Better {
    tiers: Tiers,
    jit: Arc<Jit>,
    bodies: Scope,
    /// The value of each body, and its owner.
    known: Mutex<BTreeMap<SymbolName, (i32, WeakResourceTracker)>>,
}

/// Generations are told in steps of this.
const GENERATION: usize = 2 * FUNCTIONS_MAX;
/// Added to what a better body gives.
const BETTER: i32 = FUNCTIONS_MAX as i32;
const FUNCTIONS_MAX: usize = 1 << 10;

/// What a call gives that is the first one of a stub which has gone, and its body too: its caller had found it before.
const GONE: i32 = -1;

extern "C" fn gone() -> i32 {
    GONE
}

/// After so many calls a function may go up.
const CALLS: u32 = 5;

/// Every twentieth function is removed as a whole, and added anew.
fn comes_and_goes(function: usize) -> bool {
    function.is_multiple_of(20)
}

fn name(function: usize) -> String {
    format!("f{function}")
}

impl Storm {
    fn new(size: &Size) -> Self {
        let jit = Arc::new(engine(2));
        let bodies = jit.create_dylib("bodies").expect("a new name");
        let policy = CallCounting::new().with_threshold(CALLS).with_quiet(Duration::ZERO);
        let better = Arc::new(Better {
            tiers: Tiers::new(Arc::new(policy), false),
            jit: jit.clone(),
            bodies: bodies.clone(),
            known: Mutex::default(),
        });
        let storm = Self {
            better,
            lazy: LazyCallThroughManager::new(ObjectLinkingLayer::clone(jit.object_layer()))
                .on_failure(|_| ExecutorAddr::from_ptr(gone as Answer as *const ())),
            jit,
            bodies,
            functions: (0..size.functions).map(|_| Defined::default()).collect(),
            ends: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        };
        for (function, defined) in storm.functions.iter().enumerate() {
            *defined.trackers.lock() = (Some(storm.body(function, 0)), Some(storm.stub(function, 0)));
        }
        storm
    }

    fn body(&self, function: usize, generation: i32) -> OwnedTracker {
        let number = generation * GENERATION as i32 + function as i32;
        let name = format!("f{function}${generation}");
        let tracker = add_unit(&self.jit, &self.bodies, &name, number, None);
        let mut known = self.better.known.lock();
        known.remove(&self.jit.intern(&format!("f{function}${}", generation - 1)));
        known.insert(self.jit.intern(&name), (number, tracker.downgrade()));
        tracker
    }

    fn stub(&self, function: usize, generation: i32) -> OwnedTracker {
        let tracker = self.jit.create_tracker();
        let source = self.jit.intern(&format!("f{function}${generation}"));
        let alias = AliasTarget { source, flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE };
        let functions: AliasMap = [(self.jit.intern(&name(function)), alias)].into_iter().collect();
        let unit = self.lazy.improvable_reexports(self.bodies.dylib(), functions, self.better.clone());
        self.jit.main_dylib().define_with_tracker(unit, &tracker).expect("the name is free");
        tracker
    }

    /// Redefines some functions at once; the first of them may be removed and added anew instead.
    fn redefine(&self, functions: &[usize], is_lazy: bool) {
        // In order, so that two redefiners do not wait for each other.
        let mut trackers: Vec<_> = functions.iter().map(|&it| self.functions[it].trackers.lock()).collect();
        let next = |&function: &usize| {
            let generation = self.functions[function].begun.load(Ordering::Relaxed) + 1; // under the function's lock
            self.functions[function].begun.store(generation, Ordering::Release);
            (name(function), format!("f{function}${generation}"), generation, self.body(function, generation))
        };
        let next: Vec<_> = functions.iter().map(next).collect();
        if let [function] = functions
            && comes_and_goes(*function)
        {
            trackers[0].1 = None; // Its stub goes.
            trackers[0].1 = Some(self.stub(*function, next[0].2));
        } else {
            let names = next.iter().map(|(name, body, ..)| (name.as_str(), body.as_str()));
            let redefined = match is_lazy {
                true => self.jit.redefine_lazily(&self.bodies, names),
                false => self.jit.redefine(&self.bodies, names),
            };
            redefined.expect("they are there");
        }
        for ((&function, trackers), (.., generation, body)) in functions.iter().zip(&mut trackers).zip(next) {
            self.functions[function].reached.store(generation, Ordering::Release);
            trackers.0 = Some(body); // The body before goes.
        }
    }

    /// Calls a function, if it is there at the moment.
    fn call(&self, function: usize, answer: impl FnOnce(&str) -> Result<i32, JitError>) {
        let defined = &self.functions[function];
        let reached = defined.reached.load(Ordering::Acquire);
        let number = match answer(&name(function)) {
            Ok(GONE) if comes_and_goes(function) => return,
            Ok(number) => usize::try_from(number).expect("only what is removed may be gone"),
            Err(error) if comes_and_goes(function) => {
                assert!(matches!(error, JitError::Lookup(_)), "{error}");
                return;
            }
            Err(error) => panic!("{}: {error}", name(function)),
        };
        let begun = defined.begun.load(Ordering::Acquire);
        let generation = (number / GENERATION) as i32;
        assert_eq!(number % FUNCTIONS_MAX, function);
        assert!((reached..=begun).contains(&generation), "{generation} is not in {reached}..={begun}");
    }

    fn call_under_guards(&self, random: &mut Random) {
        let mut guard = self.jit.enter();
        while !self.ends.load(Ordering::Acquire) {
            for _ in 0..random.below(64) {
                self.call(random.below(self.functions.len()), |name| {
                    // SAFETY: all functions here have this signature, and refer to nothing.
                    Ok(unsafe { self.jit.get_guarded::<Answer>(&guard, name) }?())
                });
                self.calls.fetch_add(1, Ordering::Relaxed); // a figure
            }
            guard.checkpoint();
        }
    }

    fn call_by_handles(&self, random: &mut Random) {
        let mut kept: Option<Function<Answer>> = None;
        while !self.ends.load(Ordering::Acquire) {
            self.call(random.below(self.functions.len()), |name| {
                // SAFETY: all functions here have this signature, and refer to nothing.
                let function = unsafe { self.jit.get::<Answer>(name) }?;
                let number = function();
                // Some are kept for a while: what they keep may be called, with any result.
                if let Some(kept) = kept.take() {
                    kept();
                }
                kept = Some(function).filter(|_| random.below(2) == 0);
                Ok(number)
            });
            self.calls.fetch_add(1, Ordering::Relaxed); // a figure
        }
    }
}

impl Improve for Better {
    fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    fn is_improvable(&self, body: &SymbolName) -> bool {
        self.known.lock().contains_key(body)
    }

    fn is_urgent(&self, body: &SymbolName) -> bool {
        self.known.lock().get(body).is_some_and(|(number, _)| number % 3 == 0)
    }

    /// The first attempt fails for one function in four.
    fn define_better(&self, body: &SymbolName, attempt: u32) -> Result<Option<SymbolName>, SharedError> {
        let Some((number, tracker)) = self.known.lock().get(body).cloned() else { return Ok(None) };
        let Some(tracker) = tracker.upgrade() else { return Ok(None) };
        if number % 4 == 0 && attempt == 1 {
            return Err(Arc::new(std::io::Error::other("as the test wants it")));
        }
        let better = format!("{body}+{attempt}");
        let unit = gives(&self.jit, &better, number + BETTER);
        let defined = self.bodies.dylib().define_with_tracker(unit, &tracker);
        defined.map(|()| Some(self.jit.intern(&better))).map_err(|error| Arc::new(error) as SharedError)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn blow(size: &Size) {
    let storm = Storm::new(size);
    let seed = |thread: usize| {
        Random(0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1).wrapping_mul(0xff51_afd7_ed55_8ccd))
    };
    let redefine = |redefiner: usize| {
        let mut random = seed(size.callers + redefiner);
        let is_over = || {
            let promoted = storm.better.tiers.stats().promoted;
            promoted >= size.promotions && size.until.is_none_or(|until| Instant::now() > until)
        };
        for made in 0.. {
            if made >= size.redefinitions && is_over() {
                break;
            }
            let mut functions: Vec<_> = (0..=random.below(8)).map(|_| random.below(size.functions)).collect();
            functions.sort_unstable();
            functions.dedup();
            if functions.len() > 1 {
                functions.retain(|&function| !comes_and_goes(function));
            }
            storm.redefine(&functions, random.below(2) == 0);
        }
    };
    std::thread::scope(|scope| {
        let storm = &storm;
        let call = |caller: usize| {
            move || {
                let mut random = seed(caller);
                match caller % 2 {
                    0 => storm.call_under_guards(&mut random),
                    _ => storm.call_by_handles(&mut random),
                }
            }
        };
        let callers: Vec<_> = (0..size.callers).map(|caller| scope.spawn(call(caller))).collect();
        let redefine = &redefine;
        let redefiners: Vec<_> = (0..size.redefiners).map(|it| scope.spawn(move || redefine(it))).collect();
        let redefined: Vec<_> = redefiners.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        storm.ends.store(true, Ordering::Release);
        let called: Vec<_> = callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        assert!(redefined.iter().chain(&called).all(Result::is_ok), "a thread has seen what it must not see");
    });
    assert!(storm.calls.load(Ordering::Relaxed) > 0);
    storm.better.tiers.stop_and_wait();
    assert_eq!(storm.jit.pending_reclaim().pieces, 0);
    let there = storm.jit.memory_usage().allocations;
    // Of each the stub, its body and a better one.
    assert!(there <= 3 * size.functions as u64, "{there} pieces of code for {} functions", size.functions);
    storm.functions.iter().for_each(|defined| *defined.trackers.lock() = (None, None));
    assert_eq!(storm.jit.memory_usage().allocations, 0);
}

#[test]
fn whoever_calls_in_a_storm_reaches_what_is_defined() {
    let (functions, redefinitions, promotions) = (50, 60, 20);
    blow(&Size { functions, callers: 4, redefiners: 2, redefinitions, promotions, until: None });
}

#[test]
#[ignore = "as long as URUK_STRESS_SECONDS says; run by `make stress`"]
fn stress_of_redefinition() {
    let seconds = std::env::var("URUK_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let until = Some(Instant::now() + Duration::from_secs(seconds));
    let (functions, redefinitions, promotions) = (1_000, 1_000, 1_000);
    blow(&Size { functions, callers: 16, redefiners: 4, redefinitions, promotions, until });
}
