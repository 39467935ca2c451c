//! Shared by the tests of the linker: objects made by the system's tools, and links that run in this process.

pub(crate) mod linking;

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{RuntimeEntries, TlsPlacement};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, Linked, Resolved, elf};
use uruk_pipeline::memory::{FinalizedAlloc, InProcessMemoryManager};

/// An error with all that lies behind it.
pub(crate) fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

/// A compiler of the machine, with what precedes the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool(pub(crate) &'static str);

pub(crate) const CC: Tool = Tool("cc");

/// The compilers that are there: the system's, always, and clang where it is found.
pub(crate) fn compilers() -> Vec<Tool> {
    let clang = Command::new("clang-22").arg("--version").output().is_ok();
    let mut found = vec![CC];
    found.extend(clang.then_some(Tool("clang-22")));
    found
}

/// Those of the compilers that know C++; a machine may have a C compiler alone.
pub(crate) fn cpp_compilers() -> Vec<Tool> {
    let knows_cpp = |tool: &Tool| {
        let probe = Command::new(tool.0).args(["-x", "c++", "-fsyntax-only", "/dev/null"]).output();
        probe.is_ok_and(|output| output.status.success())
    };
    compilers().into_iter().filter(knows_cpp).collect()
}

/// Compiles `source`, written in the language of the suffix `language` (`c`, `s`, `cpp`), and reads the object.
pub(crate) fn compile(tool: Tool, language: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the numbers must differ.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let stem = format!("uruk-link-{}-{number}", std::process::id());
    let directory: PathBuf = std::env::temp_dir();
    let (input, output) = (directory.join(format!("{stem}.{language}")), directory.join(format!("{stem}.o")));
    std::fs::write(&input, format!("{source}\n")).expect("the temporary directory is writable");
    let result = Command::new(tool.0).arg("-c").args(flags).arg(&input).arg("-o").arg(&output).output();
    let result = result.unwrap_or_else(|error| panic!("{} does not start: {error}", tool.0));
    let object = std::fs::read(&output);
    let _ = std::fs::remove_file(&input);
    let _ = std::fs::remove_file(&output);
    assert!(result.status.success(), "{} {flags:?}: {}", tool.0, String::from_utf8_lossy(&result.stderr));
    object.expect("the compiler wrote an object")
}

pub(crate) fn assemble(source: &str) -> Vec<u8> {
    compile(CC, "s", source, &[])
}

/// Addresses for the names that an object does not define.
pub(crate) type Externals = HashMap<String, ExecutorSymbolDef>;

pub(crate) fn external(address: u64) -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED)
}

/// The result of a link, with the address of every definition.
pub(crate) struct Program {
    pub(crate) linked: Linked,
    /// Its memory.
    pub(crate) code: FinalizedAlloc,
    pub(crate) definitions: HashMap<String, ExecutorSymbolDef>,
    _memory: Arc<InProcessMemoryManager>,
}

impl Program {
    pub(crate) fn address(&self, name: &str) -> u64 {
        self.definitions.get(name).unwrap_or_else(|| panic!("`{name}` is not defined")).address.value()
    }

    /// The bytes of a definition.
    pub(crate) fn bytes(&self, name: &str, count: usize) -> Vec<u8> {
        bytes_at(self.address(name), count)
    }

    pub(crate) fn word(&self, name: &str) -> u64 {
        word_at(self.address(name))
    }

    pub(crate) fn function(&self, name: &str) -> extern "C" fn() -> u64 {
        let pointer = self.definitions[name].address.to_ptr::<u8>();
        // SAFETY: the tests name only functions of this signature, and the program outlives the call.
        unsafe { std::mem::transmute(pointer) }
    }

    pub(crate) fn call(&self, name: &str) -> u64 {
        self.function(name)()
    }
}

pub(crate) fn bytes_at(address: u64, count: usize) -> Vec<u8> {
    // SAFETY: the tests read what they have linked, within the sizes they know.
    unsafe { std::slice::from_raw_parts(address as *const u8, count) }.to_vec()
}

pub(crate) fn word_at(address: u64) -> u64 {
    u64::from_le_bytes(bytes_at(address, 8).try_into().expect("eight bytes"))
}

/// The placement that the tests' process side gives to every image.
pub(crate) const MODULE: TlsPlacement = TlsPlacement { module: 77, offset: 0x100 };
/// The address that the tests' process side gives as the thunk's.
pub(crate) const THUNK: u64 = 0x1234_5678_9abc;

pub(crate) fn link(object: &[u8], externals: &Externals) -> Result<Program, LinkError> {
    link_graph(elf::parse("test.o", object)?, externals, &LinkOptions::default())
}

pub(crate) fn link_graph(
    graph: LinkGraph<'_>,
    externals: &Externals,
    options: &LinkOptions<'_>,
) -> Result<Program, LinkError> {
    let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
    let built = Link::new(graph, options)?;
    let allocated = built.allocate(&*memory)?;
    let definitions =
        allocated.definitions().map(|(name, definition)| (name.to_owned(), definition)).collect();
    let resolved = resolve(allocated, externals)?;
    let (filled, linked) = resolved.fix()?.into_parts();
    let code = filled.finalize().expect("memory can be protected");
    Ok(Program { linked, code, definitions, _memory: memory })
}

pub(crate) fn resolve(
    mut allocated: Link<uruk_pipeline::link::Allocated>,
    externals: &Externals,
) -> Result<Link<Resolved>, LinkError> {
    allocated.place_tls(MODULE);
    let environment = LinkEnvironment {
        tls_placement: &|address| {
            (address.value() == 0x5000).then_some(TlsPlacement { offset: 0x40, ..MODULE })
        },
        entries: RuntimeEntries { ifunc_thunk: ExecutorAddr::new(THUNK), ..RuntimeEntries::default() },
        ..LinkEnvironment::default()
    };
    allocated.resolve(|name| externals.get(name).copied(), environment)
}

/// The error of a link that must fail.
pub(crate) fn failure(object: &[u8], externals: &Externals) -> LinkError {
    match link(object, externals) {
        Ok(_) => panic!("the link was expected to fail"),
        Err(error) => error,
    }
}
