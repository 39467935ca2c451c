//! [`KeptIr`]: the IR of an engine's last compilations, in memory, for as long as a page shows it.
//!
//! It is kept as bitcode, which is smaller than text and sooner written; text is made of what is asked for.
//!
//! **Never** does a compilation wait: while another thread writes or reads here, IR is not kept.

use std::collections::VecDeque;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex};

use super::dump::{Dump, DumpedModule};
use super::error::CompileError;
use super::listing::Listing;
use super::module::{LockedModule, ThreadSafeModule};
use super::target::JitTargetMachineBuilder;
use crate::object::ObjectBuffer;

/// So many bytes of bitcode are kept; the oldest modules make room.
const BYTES_MAX: usize = 64 << 20;

/// The modules that compilers keep while a reader [wants](Self::want) them.
#[derive(Clone, Debug, Default)]
pub struct KeptIr(Arc<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    readers: AtomicUsize,
    modules: Mutex<VecDeque<KeptModule>>,
}

/// A module at one step of one compilation.
#[derive(Clone, Debug)]
pub struct KeptModule {
    /// The level, the part if the module was divided, and the step: `O2, optimized`.
    pub step: String,
    bitcode: ObjectBuffer,
}

/// Has IR be kept until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the keeping"]
pub struct WantedIr(KeptIr);

impl KeptIr {
    /// Has IR be kept from here on.
    pub fn want(&self) -> WantedIr {
        // Relaxed: a compilation that does not see it yet keeps nothing.
        self.0.readers.fetch_add(1, Ordering::Relaxed);
        WantedIr(self.clone())
    }

    fn keep(&self, module: &LockedModule<'_>, step: String) {
        // LLVM's own error concerns no one: the compilation meets it too.
        let Ok(bitcode) = module.to_bitcode() else { return };
        let Some(mut modules) = self.0.modules.try_lock() else { return };
        let room = BYTES_MAX.saturating_sub(bitcode.size_bytes());
        let mut size: usize = modules.iter().map(|kept| kept.bitcode.size_bytes()).sum();
        while size > room
            && let Some(oldest) = modules.pop_front()
        {
            size -= oldest.bitcode.size_bytes();
        }
        if bitcode.size_bytes() <= BYTES_MAX {
            modules.push_back(KeptModule { step, bitcode });
        }
    }
}

impl WantedIr {
    /// The modules of a unit, and of functions of it that were compiled by themselves; the oldest first.
    pub fn of_unit(&self, unit: &str) -> Vec<KeptModule> {
        let modules = self.0.0.modules.lock();
        modules.iter().filter(|kept| crate::debug::is_of_unit(kept.bitcode.name(), unit)).cloned().collect()
    }
}

impl Drop for WantedIr {
    fn drop(&mut self) {
        let shelf = &self.0.0;
        // Relaxed: as in `want`. A module that is kept at this moment stays until the next reader goes, or the engine.
        if shelf.readers.fetch_sub(1, Ordering::Relaxed) == 1 {
            let gone = std::mem::take(&mut *shelf.modules.lock());
            drop(gone);
        }
    }
}

impl KeptModule {
    /// The module's name: the unit's, or that of a function of it.
    pub fn name(&self) -> &str {
        self.bitcode.name()
    }

    /// The module as text.
    ///
    /// # Errors
    /// [`CompileError`], if LLVM has no memory for it.
    pub fn text(&self) -> Result<String, CompileError> {
        ThreadSafeModule::parse_unverified(&self.bitcode)?.lock()?.to_text()
    }
}

/// Those that look on while a compiler works: a directory, a page, a list.
#[derive(Clone, Debug)]
pub(super) struct Onlookers {
    pub(super) dump: Option<Dump>,
    pub(super) kept: KeptIr,
    pub(super) listing: Listing,
    pub(super) level: String,
}

/// One compilation that is looked at.
pub(super) struct Watched {
    dumped: Option<DumpedModule>,
    kept: Option<(KeptIr, String)>,
    listed: (Listing, usize),
}

impl Onlookers {
    /// The compilation of a module begins, or of a part of one.
    pub(super) fn begin(&self, module: &LockedModule<'_>, part: Option<usize>) -> Watched {
        let level = part.map_or_else(|| self.level.clone(), |part| format!("{}.part{part}", self.level));
        let dumped = self.dump.as_ref().map(|dump| dump.begin(module, &level));
        // Relaxed: as in `KeptIr::want`.
        let is_wanted = self.kept.0.readers.load(Ordering::Relaxed) > 0;
        let kept = is_wanted.then(|| (self.kept.clone(), level));
        if let Some((kept, level)) = &kept {
            kept.keep(module, format!("{level}, as it came"));
        }
        Watched { dumped, kept, listed: (self.listing.clone(), part.unwrap_or_default()) }
    }
}

impl Watched {
    /// The passes have run.
    pub(super) fn optimized(&mut self, module: &LockedModule<'_>, target: &JitTargetMachineBuilder) {
        if let Some(dumped) = &mut self.dumped {
            dumped.optimized(module, target);
        }
        if let Some((kept, level)) = &self.kept {
            kept.keep(module, format!("{level}, optimized"));
        }
        let (listing, part) = &self.listed;
        listing.optimized(module, *part, target);
    }

    /// The code was generated.
    pub(super) fn object(&mut self, object: &ObjectBuffer) {
        if let Some(dumped) = &mut self.dumped {
            dumped.object(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{IrCompiler, OptimizationLevel};

    fn compile(compiler: &IrCompiler, name: &str) {
        let text = "define i64 @answer() { %x = add i64 40, 2 ret i64 %x }";
        let module = ThreadSafeModule::parse(&ObjectBuffer::new(name, text.as_bytes())).expect("it is IR");
        compiler.compile(module).expect("it compiles");
    }

    #[test]
    fn ir_is_kept_while_it_is_wanted() {
        let compiler = IrCompiler::host(OptimizationLevel::O2).expect("a compiler for this machine");
        compile(&compiler, "before.ll");
        let wanted = compiler.kept().want();
        for name in ["a.ll", "a.ll: answer", "b.ll"] {
            compile(&compiler, name);
        }
        assert_eq!(wanted.of_unit("before.ll").len(), 0);
        let kept = wanted.of_unit("a.ll");
        let steps: Vec<_> = kept.iter().map(|kept| (kept.name(), kept.step.as_str())).collect();
        let [came, optimized] = ["O2, as it came", "O2, optimized"];
        let name = "a.ll: answer";
        assert_eq!(steps, [("a.ll", came), ("a.ll", optimized), (name, came), (name, optimized)]);
        assert!(kept[0].text().expect("text").contains("add i64 40, 2"));
        assert!(kept[1].text().expect("text").contains("ret i64 42"));
        let again = compiler.kept().want();
        drop(wanted);
        assert_eq!(again.of_unit("b.ll").len(), 2);
        drop(again);
        assert_eq!(compiler.kept().want().of_unit("b.ll").len(), 0);
    }

    #[test]
    fn the_oldest_makes_room() {
        let kept = KeptIr::default();
        let wanted = kept.want();
        let module =
            ThreadSafeModule::parse(&ObjectBuffer::new("a.ll", b"define void @f() { ret void }".as_slice()));
        let module = module.expect("it is IR");
        let size = module.to_bitcode().expect("bitcode").size_bytes();
        for number in 0..BYTES_MAX / size + 10 {
            kept.keep(&module.lock().expect("it is there"), number.to_string());
        }
        let modules = wanted.of_unit("a.ll");
        assert_eq!((modules.len(), &*modules[0].step), (BYTES_MAX / size, "10"));
    }
}
