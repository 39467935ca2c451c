//! Several objects linked as a session would link them, with the process side's help, and started.

use std::collections::HashMap;
use std::sync::Arc;

use uruk_core::{ExecutorAddr, ExecutorSymbolDef};
use uruk_pipeline::executor::{Executor, Published};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkOptions, elf};
use uruk_pipeline::memory::{MemoryManager, MemoryUsage};
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::{ProcessSymbols, jit_overrides};

pub(crate) struct Running {
    definitions: HashMap<String, ExecutorSymbolDef>,
    _code: Vec<Box<dyn Published>>,
    memory: Arc<dyn MemoryManager>,
}

impl Running {
    pub(crate) fn memory_usage(&self) -> MemoryUsage {
        self.memory.usage()
    }

    pub(crate) fn call(&self, name: &str) -> i64 {
        let function = self.definitions[name].address.to_ptr::<u8>();
        // SAFETY: the tests name functions of this signature only, and the memory lives as long as `self`.
        let function: extern "C" fn() -> i64 = unsafe { std::mem::transmute(function) };
        function()
    }
}

/// Links `objects` together in `memory`: the first definition of a name counts.
pub(crate) fn start_in(
    memory: Box<dyn MemoryManager>,
    process: &ProcessSymbols,
    objects: &[Vec<u8>],
) -> Result<Running, LinkError> {
    let memory: Arc<dyn MemoryManager> = memory.into();
    let executor = InProcessExecutor::new(memory.clone());
    let overrides: HashMap<_, _> = jit_overrides().into_iter().collect();
    let mut definitions: HashMap<String, ExecutorSymbolDef> = HashMap::new();
    let mut allocated = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let graph = elf::parse(&format!("{number}.o"), object).unwrap_or_else(|error| panic!("{error}"));
        let options =
            LinkOptions { is_discarded: &|name| definitions.contains_key(name), ..LinkOptions::default() };
        let link = Link::new(graph, &options)?.allocate(&*memory)?;
        definitions.extend(link.definitions().map(|(name, definition)| (name.to_owned(), definition)));
        allocated.push(link);
    }
    let (mut code, mut initializers) = (Vec::new(), Vec::new());
    for mut link in allocated {
        let reservation = link.tls_shape().map(|shape| executor.place_tls(shape).expect("a module"));
        if let Some(reservation) = &reservation {
            link.place_tls(reservation.placement());
        }
        let environment = LinkEnvironment { entries: executor.entries(), ..LinkEnvironment::default() };
        let find = |name: &str| {
            let known = definitions.get(name).or_else(|| overrides.get(name)).copied();
            known.or_else(|| process.lookup(name))
        };
        let (filled, linked) = link.resolve(find, environment)?.fix()?.into_parts();
        code.push(executor.publish(filled, reservation, linked.actions).expect("the process takes it"));
        initializers.extend(linked.initializers.into_iter().flat_map(|object| object.initializers));
    }
    initializers.into_iter().for_each(|(_, initializer)| call_initializer(initializer));
    Ok(Running { definitions, _code: code, memory })
}

fn call_initializer(function: ExecutorAddr) {
    // SAFETY: initialisers take what `main` takes and ignore it here; all objects are linked by now.
    let function: extern "C" fn(i32, *const u8, *const u8) =
        unsafe { std::mem::transmute(function.to_ptr::<u8>()) };
    function(0, std::ptr::null(), std::ptr::null());
}

pub(crate) const THROWER: &str = "
    #include <stdexcept>
    #include <string>
    struct Error : std::runtime_error { using std::runtime_error::runtime_error; int code = 7; };
    extern int destroyed;
    inline int once() { static int count = [] { return 0; }(); return ++count; }
    struct Guard { ~Guard() { destroyed++; } };
    void thrower(int depth) { Guard guard; if (depth == 0) throw Error(\"deep\" + std::to_string(once())); thrower(depth - 1); }
    ";
pub(crate) const CATCHER: &str = "
    #include <stdexcept>
    #include <iostream>
    #include <sstream>
    #include <vector>
    struct Error : std::runtime_error { using std::runtime_error::runtime_error; int code = 7; };
    int destroyed;
    inline int once() { static int count = [] { return 0; }(); return ++count; }
    void thrower(int depth);
    struct Early { std::vector<int> values{1, 2, 3}; ~Early() { values.clear(); } } early;
    thread_local std::string text = \"local\";
    extern \"C\" long run() {
        long result = 0;
        try { thrower(10); } catch (Error &error) { result = error.code + std::string(error.what()).size() * 10; }
        try { std::vector<int>().at(3); } catch (std::out_of_range &) { result += 100; }
        std::ostringstream out; out << std::hex << 255 << text;
        if (!std::cout.good()) return -1;
        return result + destroyed * 1000 + once() * 100000 + (out.str() == \"fflocal\") * 1000000 + early.values.size() * 10000000;
    }";
