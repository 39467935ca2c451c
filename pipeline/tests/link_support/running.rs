//! Several objects linked as a session would link them, with the process side's help, and started.

use std::collections::HashMap;

use uruk_core::{ExecutorAddr, ExecutorSymbolDef};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkOptions, Linked, TlsPlacement, elf};
use uruk_pipeline::memory::{MemoryManager, MemoryUsage};
use uruk_pipeline::runtime::process::{ProcessSymbols, jit_overrides};
use uruk_pipeline::runtime::tls::TlsModule;
use uruk_pipeline::runtime::unwind::UnwindRegistration;
use uruk_pipeline::runtime::{ifunc, tls, unwind};

/// Fields are dropped in order: code without its registrations can no longer be found.
pub(crate) struct Running {
    definitions: HashMap<String, ExecutorSymbolDef>,
    _unwind: Vec<UnwindRegistration>,
    _modules: Vec<TlsModule>,
    _linked: Vec<Linked>,
    memory: Box<dyn MemoryManager>,
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
    let mut modules = Vec::new();
    let mut linked = Vec::new();
    for mut link in allocated {
        if let Some(image) = link.tls_image() {
            let module = tls::register_module(
                image.image_bytes as usize,
                image.total_bytes as usize,
                image.align as usize,
            );
            let module = module.expect("a module");
            module.initialize(image.address); // No thread looks at it before all is linked.
            link.place_tls(TlsPlacement { module: module.id(), offset: 0 });
            modules.push(module);
        }
        let environment = LinkEnvironment { ifunc_thunk: ifunc::lazy_thunk(), ..LinkEnvironment::default() };
        let find = |name: &str| {
            let known = definitions.get(name).or_else(|| overrides.get(name)).copied();
            known.or_else(|| process.lookup(name))
        };
        linked.push(link.resolve(find, environment)?.fix()?.into_linked());
    }
    let tables = linked.iter().filter_map(|linked| linked.unwind.clone());
    let unwind =
        tables.map(|table| unwind::register(table.code, table.eh_frame_hdr).expect("registers")).collect();
    for (_, initializer) in
        linked.iter().flat_map(|linked| &linked.initializers).flat_map(|object| &object.initializers)
    {
        call_initializer(*initializer);
    }
    Ok(Running { definitions, _unwind: unwind, _modules: modules, _linked: linked, memory })
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
