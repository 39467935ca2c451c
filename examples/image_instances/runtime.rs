//! The runtime: its code instances come from the image, or are compiled.

use std::cell::{Cell, RefCell};
use std::path::Path;

use uruk::core::ExecutorAddr;
use uruk::instances::{CodeInstanceTable, InstanceClaim, World};
use uruk::pipeline::image::UnitKey;
use uruk::prelude::*;
use uruk::{ImageOptions, InstanceDefinitions, InstanceOrigin, LoadedImage};

use crate::Outcome;
use crate::methods::{METHODS, Numbers, contained, ir_of, key_of};

/// A runtime of one thread.
pub(crate) struct Runtime {
    jit: Jit,
    image: LoadedImage,
    table: CodeInstanceTable<usize, (), ExecutorAddr>,
    numbers: RefCell<Numbers>,
    /// How many methods were compiled.
    pub(crate) compiled: Cell<usize>,
}

impl InstanceDefinitions<usize, ()> for Runtime {
    fn ids(&self, method: &[u8], _: &[u8]) -> Option<(usize, ())> {
        METHODS.iter().position(|(name, _)| name.as_bytes() == method).map(|method| (method, ()))
    }

    /// This runtime has one thread, which asks for the current world alone.
    fn key(&self, method: usize, (): (), _: World) -> Option<UnitKey> {
        Some(key_of(self.numbers.borrow()[method]))
    }
}

impl Runtime {
    pub(crate) fn start(path: &Path, numbers: Numbers) -> Outcome<Self> {
        let jit = Jit::builder().threads(1).build()?;
        let image = jit.load_image(path, ImageOptions::new())?;
        let (table, numbers) = (CodeInstanceTable::new(), RefCell::new(numbers));
        Ok(Self { jit, image, table, numbers, compiled: Cell::new(0) })
    }

    /// Calls a method, whose code comes from the image if that is right.
    fn call(&self, method: usize, x: i64) -> Outcome<i64> {
        let name = METHODS[method].0;
        let mut restored = Ok(InstanceOrigin::Absent);
        let claim = self.table.claim_or_restore(method, (), self.table.world(), |compile| {
            restored = self.jit.restore_instance(&self.image, compile, name.as_bytes(), b"", self);
        });
        if let InstanceOrigin::Rejected(reason) = restored? {
            println!("  {name} is compiled: {reason}");
        }
        let instance = match claim {
            InstanceClaim::There(instance) => instance,
            InstanceClaim::Compile(compile) => {
                for assumed in contained(method) {
                    compile.assume(assumed, ())?;
                }
                self.compiled.set(self.compiled.get() + 1);
                let symbol = format!("{name}.{}", compile.world());
                self.jit.add_ir_text(&symbol, &ir_of(method, &symbol, &self.numbers.borrow()))?;
                let code = self.jit.lookup(&symbol)?.address;
                compile.instance().publish_invoke(code).map_err(|_| "one thread compiles it")?;
                compile.instance().clone()
            }
        };
        let code = instance.invoke().ok_or("it was published")?;
        // SAFETY: all methods have this signature, and their code stays.
        let code: extern "C" fn(i64) -> i64 = unsafe { std::mem::transmute(code.to_ptr::<()>()) };
        Ok(code(x))
    }

    pub(crate) fn call_all(&self) -> Outcome<Vec<i64>> {
        (0..METHODS.len()).map(|method| self.call(method, 1000)).collect()
    }

    /// Gives a method another number. Gives how many instances that ended.
    pub(crate) fn redefine(&self, method: usize, number: i64) -> usize {
        self.numbers.borrow_mut()[method] = number;
        self.table.redefine([method]).ended.len()
    }
}
