//! The methods of the runtime, and the image that they are compiled into.

use std::fmt::Write as _;
use std::path::Path;

use uruk::pipeline::image::{BuiltInstance, UnitKey};
use uruk::{ImageBuilder, Jit};

use crate::Outcome;

/// Each adds its number to the value of the one that it names, whose code it contains.
pub(crate) const METHODS: [(&str, Option<&str>); 4] =
    [("price", None), ("tax", Some("price")), ("total", Some("tax")), ("weight", None)];

/// The numbers of the methods: their definitions.
pub(crate) type Numbers = [i64; 4];

pub(crate) fn number_of(method: &str) -> usize {
    METHODS.iter().position(|(name, _)| *name == method).unwrap_or_default()
}

/// The methods whose code is in that of a method, its own first.
pub(crate) fn contained(method: usize) -> Vec<usize> {
    let mut found = vec![method];
    while let Some(next) = METHODS[found[found.len() - 1]].1 {
        found.push(number_of(next));
    }
    found
}

/// The code of a method, with that of others in it.
pub(crate) fn ir_of(method: usize, symbol: &str, numbers: &Numbers) -> String {
    let mut text = format!("define i64 @{symbol}(i64 %x0) {{");
    let contained = contained(method);
    for (step, method) in contained.iter().enumerate() {
        let _ = write!(text, " %x{} = add i64 %x{step}, {}", step + 1, numbers[*method]);
    }
    text + &format!(" ret i64 %x{} }}", contained.len())
}

/// A definition is its number here. A real host would hash its source.
pub(crate) fn key_of(number: i64) -> UnitKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// Compiles all methods into an image.
pub(crate) fn build(path: &Path, numbers: &Numbers) -> Outcome<()> {
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
