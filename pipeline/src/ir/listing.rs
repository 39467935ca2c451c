//! [`Listing`]: what a compiler makes of each module besides its object, for those who want files of it: bitcode or assembly.

use std::collections::HashMap;

use uruk_core::sync::atomic::{AtomicU8, Ordering};
use uruk_core::sync::{Arc, Mutex};

use super::error::CompileError;
use super::module::LockedModule;
use super::target::JitTargetMachineBuilder;

/// A form that optimized modules are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingForm {
    /// The bitcode from which code is generated.
    Bitcode = 1,
    /// The code, for an assembler.
    Assembly = 2,
}

/// The modules of compilers after optimization, in one form, once that is [wanted](Self::want).
#[derive(Clone, Debug, Default)]
pub struct Listing(Arc<Listed>);

#[derive(Debug, Default)]
struct Listed {
    /// A [`ListingForm`], or zero.
    form: AtomicU8,
    modules: Mutex<HashMap<Box<str>, Vec<ListedPart>>>,
}

#[derive(Debug)]
struct ListedPart {
    part: usize,
    bytes: Result<Vec<u8>, CompileError>,
}

impl Listing {
    /// Has modules listed that are compiled from here on. Those that a cache has are not compiled.
    ///
    /// # Cost
    /// For [`Assembly`](ListingForm::Assembly) code is generated twice.
    pub fn want(&self, form: ListingForm) {
        // Relaxed: a compilation that does not see it yet lists nothing.
        self.0.form.store(form as u8, Ordering::Relaxed);
    }

    /// Takes what was listed of a module: its parts in order, or the whole.
    ///
    /// # Errors
    /// [`CompileError`] of the form. The object was generated all the same.
    pub fn take(&self, module: &str) -> Option<Result<Vec<Vec<u8>>, CompileError>> {
        let mut parts = self.0.modules.lock().remove(module)?;
        parts.sort_by_key(|part| part.part);
        Some(parts.into_iter().map(|part| part.bytes).collect())
    }

    /// Whether modules are listed.
    pub(super) fn is_wanted(&self) -> bool {
        self.form().is_some()
    }

    fn form(&self) -> Option<ListingForm> {
        // Relaxed: as in `want`.
        match self.0.form.load(Ordering::Relaxed) {
            1 => Some(ListingForm::Bitcode),
            2 => Some(ListingForm::Assembly),
            _ => None,
        }
    }

    /// Notes a module that was optimized. Assembly is made from a copy, so that the object is the same as without it.
    pub(super) fn optimized(&self, module: &LockedModule<'_>, part: usize, target: &JitTargetMachineBuilder) {
        let bytes = match self.form() {
            None => return,
            Some(ListingForm::Bitcode) => module.to_bitcode().map(|bitcode| bitcode.bytes().to_vec()),
            Some(ListingForm::Assembly) => {
                let copy = module.to_canonical();
                copy.and_then(|copy| Ok(target.assembly_of(&copy.lock()?)?.bytes().to_vec()))
            }
        };
        let name: Box<str> = (&**module.name()).into();
        self.0.modules.lock().entry(name).or_default().push(ListedPart { part, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{IrCompiler, OptimizationLevel, Partition, PartitionPolicy, ThreadSafeModule};
    use crate::object::ObjectBuffer;

    const TEXT: &str = "
        define i64 @one() { %x = add i64 40, 2 ret i64 %x }
        define i64 @two() { %x = call i64 @one() ret i64 %x }";

    #[test]
    fn modules_are_listed_when_it_is_wanted_and_objects_stay_the_same() {
        let compile = |compiler: &IrCompiler| {
            let module =
                ThreadSafeModule::parse(&ObjectBuffer::new("a.ll", TEXT.as_bytes())).expect("it is IR");
            compiler.compile(module).expect("it compiles")
        };
        let compiler = IrCompiler::host(OptimizationLevel::O2).expect("a compiler for this machine");
        let object = compile(&compiler);
        assert!(compiler.listing().take("a.ll").is_none());
        compiler.listing().want(ListingForm::Assembly);
        assert_eq!(compile(&compiler).bytes(), object.bytes());
        let listed = compiler.listing().take("a.ll").expect("it was compiled").expect("it is listed");
        assert!(listed.len() == 1 && String::from_utf8_lossy(&listed[0]).contains("one:"));
        assert!(compiler.listing().take("a.ll").is_none(), "it was taken");
        compiler.listing().want(ListingForm::Bitcode);
        let divided =
            compiler.clone().with_partition(Partition::new(PartitionPolicy::Early, 2).of_all_modules());
        compile(&divided);
        let listed = compiler.listing().take("a.ll").expect("it was compiled").expect("it is listed");
        assert_eq!(listed.len(), 2);
        for part in listed {
            let module = ThreadSafeModule::parse(&ObjectBuffer::new("part.bc", part)).expect("it is bitcode");
            assert!(module.lock().expect("it is ours").to_text().expect("text").contains("i64 @"));
        }
    }
}
