//! Thread-local variables of linked code, looked at from threads that were there before the link and from others.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::link_support::chain;
use uruk_core::{ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError, ResourceTracker, SearchOrder};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::object::{ObjectBuffer, ObjectMaterializationUnit};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};

pub(crate) type Function = extern "C" fn() -> u64;

/// A session whose code sees the libraries of the process.
pub(crate) struct Linking {
    session: ExecutionSession,
    dylib: JitDylib,
    layer: Arc<dyn ObjectLayer>,
    pub(crate) libraries: Arc<ProcessSymbols>,
}

impl Linking {
    pub(crate) fn new() -> Self {
        Self::noticing_imports(|| ())
    }

    /// Calls `notice` in the middle of each link that has a symbol looked up in the process for the first time.
    pub(crate) fn noticing_imports(notice: impl Fn() + Send + Sync + 'static) -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let libraries = session.create_jit_dylib("libraries").expect("new");
        let process = Arc::new(ProcessSymbols::new());
        let generator = ProcessSymbolsGenerator::new(process.clone()).adjusted_by(move |_, definition| {
            notice();
            definition
        });
        libraries.add_generator(Arc::new(generator));
        dylib.add_to_link_order(&libraries, JitDylibLookupFlags::MatchExportedSymbolsOnly).expect("no cycle");
        let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let layer: Arc<dyn ObjectLayer> = Arc::new(ObjectLinkingLayer::new(
            Arc::new(InProcessExecutor::new(memory)),
            Arc::new(Platform::new()),
        ));
        Self { session, dylib, layer, libraries: process }
    }

    pub(crate) fn add(&self, name: &str, object: Vec<u8>) -> ResourceTracker {
        let object = ObjectBuffer::new(name, object);
        let unit = ObjectMaterializationUnit::new(&self.session, self.layer.clone(), object);
        let tracker = self.dylib.create_tracker();
        self.dylib.define_with_tracker(Box::new(unit.expect("an object")), &tracker).expect("a new name");
        tracker
    }

    pub(crate) fn find(&self, name: &str) -> Result<Function, LookupError> {
        let order = SearchOrder::of(&self.dylib);
        let found = self.session.lookup_symbol(&order, &self.session.intern(name))?;
        // SAFETY: every function of these tests has this signature, and the session outlives the calls.
        Ok(unsafe { std::mem::transmute::<*const u8, Function>(found.address.to_ptr()) })
    }

    /// The error of a lookup that must fail, with all its causes.
    pub(crate) fn refusal(&self, name: &str) -> String {
        let error = self.find(name).err().unwrap_or_else(|| panic!("`{name}` was expected to be refused"));
        chain(&error)
    }
}

/// A thread that calls functions for the test.
pub(crate) struct Caller {
    calls: Sender<(Function, Sender<u64>)>,
    thread: JoinHandle<()>,
}

impl Caller {
    pub(crate) fn start() -> Self {
        let (calls, receiver) = channel::<(Function, Sender<u64>)>();
        let thread = std::thread::spawn(move || {
            for (function, answer) in receiver {
                answer.send(function()).expect("the test waits");
            }
        });
        Self { calls, thread }
    }

    pub(crate) fn call(&self, function: Function) -> u64 {
        let (answer, receiver) = channel();
        self.calls.send((function, answer)).expect("the thread waits");
        receiver.recv().expect("the thread answers")
    }

    pub(crate) fn end(self) {
        drop(self.calls);
        self.thread.join().expect("it ends well");
    }
}

/// Variables of every kind. `check` answers what is not as it was initialised, and changes all of it; `where` where the
/// calling thread's first variable is.
pub(crate) const VARIABLES: &str = "
    int target;
    __thread int initial = 5;
    __thread int *pointer = &target;
    static __thread long own = 7;
    static __thread char zeros[300];
    _Alignas(64) __thread char aligned[64] = \"aligned\";
    unsigned long check(void) {
      unsigned long wrong = 0;
      if (initial != 5) wrong |= 1;
      if (pointer != &target) wrong |= 2;
      if (own != 7) wrong |= 4;
      for (int i = 0; i < 300; i++) if (zeros[i]) wrong |= 8;
      if ((unsigned long)aligned % 64) wrong |= 16;
      if (aligned[6] != 'd') wrong |= 32;
      initial = 6, pointer = 0, own = 8, zeros[150] = 1, aligned[6] = 0;
      return wrong;
    }
    unsigned long where(void) { return (unsigned long)&initial; }";

/// Another object that reaches the first variable, by the model it is compiled for.
pub(crate) const NEIGHBOUR: &str = "
    extern __thread int initial;
    unsigned long where_else(void) { return (unsigned long)&initial; }";

/// Checks [`VARIABLES`] and [`NEIGHBOUR`] on a thread that was there before them, on this one, and on a new one.
pub(crate) fn check_on_all_threads(linking: &Linking, before: &Caller, what: &str) {
    let [check, place, place_else] = ["check", "where", "where_else"]
        .map(|name| linking.find(name).unwrap_or_else(|error| panic!("{what}: {error:?}")));
    let after = Caller::start();
    let callers: [&dyn Fn(Function) -> u64; 3] =
        [&|function| before.call(function), &|function| function(), &|function| after.call(function)];
    let mut places = Vec::new();
    for (call, which) in callers.iter().zip(["from before", "this", "from after"]) {
        assert_eq!(call(check), 0, "{what}, the thread {which}: what is wrong, in bits");
        assert_ne!(call(check), 0, "{what}, the thread {which}: changes stay");
        assert_eq!(call(place), call(place_else), "{what}, the thread {which}: one address for all models");
        places.push(call(place));
    }
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3, "{what}: each thread has its own");
    after.end();
}
