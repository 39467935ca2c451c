//! A runtime that starts from an image: its methods were compiled before, so it compiles none. When a method is redefined, those are compiled
//! that contain its code, and no others.
//!
//! `cargo run --example image_instances`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt::Write as _;

use uruk::core::ExecutorAddr;
use uruk::instances::{CodeInstanceTable, InstanceClaim, World};
use uruk::pipeline::image::{BuiltInstance, UnitKey};
use uruk::prelude::*;
use uruk::{ImageBuilder, ImageOptions, InstanceDefinitions, InstanceOrigin, LoadedImage};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Each adds its number to the value of the one that it names, whose code it contains.
const METHODS: [(&str, Option<&str>); 4] =
    [("price", None), ("tax", Some("price")), ("total", Some("tax")), ("weight", None)];

/// The numbers of the methods: their definitions.
type Numbers = [i64; 4];

fn number_of(method: &str) -> usize {
    METHODS.iter().position(|(name, _)| *name == method).unwrap_or_default()
}

/// The methods whose code is in that of a method, its own first.
fn contained(method: usize) -> Vec<usize> {
    let mut found = vec![method];
    while let Some(next) = METHODS[found[found.len() - 1]].1 {
        found.push(number_of(next));
    }
    found
}

/// The code of a method, with that of others in it.
fn ir_of(method: usize, symbol: &str, numbers: &Numbers) -> String {
    let mut text = format!("define i64 @{symbol}(i64 %x0) {{");
    let contained = contained(method);
    for (step, method) in contained.iter().enumerate() {
        let _ = write!(text, " %x{} = add i64 %x{step}, {}", step + 1, numbers[*method]);
    }
    text + &format!(" ret i64 %x{} }}", contained.len())
}

/// A definition is its number here. A real host would hash its source.
fn key_of(number: i64) -> UnitKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// Compiles all methods into an image.
fn build(path: &std::path::Path, numbers: &Numbers) -> Outcome<()> {
    let builder = ImageBuilder::new(Jit::builder().threads(1))?;
    for (method, (name, _)) in METHODS.iter().enumerate() {
        builder.add_ir_text(name, &ir_of(method, name, numbers))?;
        let mut instance = BuiltInstance::new(*name, "", *name);
        for assumed in contained(method) {
            instance = instance.assumes(METHODS[assumed].0, "", key_of(numbers[assumed]));
        }
        builder.instance(instance)?;
    }
    Ok(builder.build()?.write(path)?)
}

struct Runtime {
    jit: Jit,
    image: LoadedImage,
    table: CodeInstanceTable<usize, (), ExecutorAddr>,
    numbers: RefCell<Numbers>,
    compiled: Cell<usize>,
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
    fn start(path: &std::path::Path, numbers: Numbers) -> Outcome<Self> {
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

    fn call_all(&self) -> Outcome<Vec<i64>> {
        (0..METHODS.len()).map(|method| self.call(method, 1000)).collect()
    }

    /// Gives a method another number. Gives how many instances that ended.
    fn redefine(&self, method: usize, number: i64) -> usize {
        self.numbers.borrow_mut()[method] = number;
        self.table.redefine([method]).ended.len()
    }
}

fn main() -> Outcome<()> {
    let path = std::env::temp_dir().join(format!("uruk-image-instances-{}.uim", std::process::id()));
    let numbers = [1, 20, 300, 4000];
    build(&path, &numbers)?;
    let runtime = Runtime::start(&path, numbers)?;
    std::fs::remove_file(&path)?; // It is mapped.
    assert_eq!(runtime.call_all()?, [1001, 1021, 1321, 5000]);
    assert_eq!(runtime.compiled.get(), 0);
    println!("four methods called, and none compiled");

    let ended = runtime.redefine(number_of("tax"), 50);
    assert_eq!(runtime.call_all()?, [1001, 1051, 1351, 5000]);
    assert_eq!((ended, runtime.compiled.get()), (2, 2));
    println!(
        "`tax` was redefined: {ended} instances ended, and {} methods were compiled",
        runtime.compiled.get()
    );
    Ok(())
}
