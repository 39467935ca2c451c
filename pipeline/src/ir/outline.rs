//! The parts to which the values of a module belong when its functions are compiled one at a time; and their form as bytes, for a cache.
//!
//! ```text
//!  bytes of the interface: length (4), and they (`interface_bytes.rs`)
//!  whether it stays whole (1)
//!  how many values (4)
//!  values: kind (1), function (4), bits (4), name
//! ```
//!
//! Holds: reading gives the values that were written. All other bytes are [`Damage::Form`].

use std::collections::HashSet;

use super::ffi::symbol_bits;
use super::interface_bytes::{FieldReader, FieldWriter};
use super::symbols::ModuleInterface;
use crate::cache::Damage;

/// The part to which a value of a module belongs; `functions.cpp` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValuePart {
    Elsewhere,
    OnCall,
    InData,
    WithFunction,
    OtherName,
}

impl ValuePart {
    const ALL: [Self; 5] = [Self::Elsewhere, Self::OnCall, Self::InData, Self::WithFunction, Self::OtherName];

    pub(super) fn of(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The values of a module, with their parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) values: Vec<OutlinedValue>,
    /// Names that are local to the module and known to several parts of it.
    pub(super) locals: HashSet<Box<str>>,
    /// Functions whose blocks data or stored addresses refer to. They cannot be compiled twice.
    pub(super) compiled_once: HashSet<u32>,
    /// Whether the module has to be compiled as a whole.
    pub(super) stays_whole: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutlinedValue {
    pub(super) name: Box<str>,
    pub(super) kind: ValuePart,
    /// The number of the function that it belongs to.
    pub(super) of: u32,
    pub(super) bits: u32,
}

impl OutlinedValue {
    pub(super) fn is_local(&self) -> bool {
        self.bits & symbol_bits::LOCAL != 0
    }
}

impl Outline {
    pub(super) fn push(&mut self, value: OutlinedValue) {
        if value.kind != ValuePart::Elsewhere && value.is_local() {
            self.locals.insert(value.name.clone());
        }
        if value.kind == ValuePart::WithFunction {
            self.compiled_once.insert(value.of);
        }
        if value.bits & symbol_bits::ONCE != 0
            && let Ok(number) = u32::try_from(self.values.len())
        {
            self.compiled_once.insert(number);
        }
        self.values.push(value);
    }

    /// Whether the name of a value begins so.
    pub(super) fn has_names_with(&self, prefix: &str) -> bool {
        self.values.iter().any(|value| value.name.starts_with(prefix))
    }

    /// The outline of a module of this `interface` as [`from_bytes`](Self::from_bytes) reads it.
    pub(super) fn to_bytes(&self, interface: &ModuleInterface) -> Vec<u8> {
        let interface = interface.to_bytes();
        let mut writer = FieldWriter(Vec::new());
        writer.length(interface.len()).bytes(&interface).bytes(&[u8::from(self.stays_whole)]);
        writer.length(self.values.len());
        for OutlinedValue { name, kind, of, bits } in &self.values {
            writer.bytes(&[*kind as u8]).number(*of).number(*bits).name(name);
        }
        writer.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<(ModuleInterface, Self), Damage> {
        read(bytes).ok_or(Damage::Form)
    }
}

fn read(bytes: &[u8]) -> Option<(ModuleInterface, Outline)> {
    /// Of a value without a name.
    const VALUE_BYTES_MIN: usize = 13;
    let mut reader = FieldReader(bytes);
    let length = usize::try_from(reader.number()?).ok()?;
    let interface = ModuleInterface::from_bytes(reader.take(length)?).ok()?;
    let stays_whole = match reader.array()? {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    let count = reader.number()?;
    let values = reader.list(count, VALUE_BYTES_MIN, |reader| {
        let [kind] = reader.array()?;
        let (kind, of, bits) = (ValuePart::of(kind.into())?, reader.number()?, reader.number()?);
        Some(OutlinedValue { name: reader.name()?, kind, of, bits })
    })?;
    if !reader.0.is_empty() || values.iter().any(|value| value.of >= count) {
        return None;
    }
    let mut outline = Outline { stays_whole, ..Outline::default() };
    values.into_iter().for_each(|value| outline.push(value));
    Some((interface, outline))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (Vec<u8>, Outline) {
        let value = |name: &str, kind, of, bits| OutlinedValue { name: name.into(), kind, of, bits };
        let mut outline = Outline::default();
        for value in [
            value("f", ValuePart::OnCall, 0, symbol_bits::ONCE),
            value("table", ValuePart::WithFunction, 0, symbol_bits::LOCAL),
            value("", ValuePart::InData, 0, symbol_bits::LOCAL),
            value("g", ValuePart::OtherName, 0, 0),
            value("puts", ValuePart::Elsewhere, 0, symbol_bits::UNDEFINED),
        ] {
            outline.push(value);
        }
        let interface = ModuleInterface { undefined: vec!["puts".into()], ..ModuleInterface::default() };
        (outline.to_bytes(&interface), outline)
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let (bytes, outline) = written();
        let (interface, read) = Outline::from_bytes(&bytes).expect("it was written a moment ago");
        assert_eq!((&*interface.undefined[0], read), ("puts", outline));
    }

    #[test]
    fn what_is_damaged_is_refused_or_written_as_it_is_read() {
        let (bytes, outline) = written();
        for end in 0..bytes.len() {
            assert!(Outline::from_bytes(&bytes[..end]).is_err(), "cut off at {end}");
        }
        assert!(Outline::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            if let Ok((interface, read)) = Outline::from_bytes(&changed) {
                assert_eq!(read.to_bytes(&interface), changed);
                assert!(read.values.iter().all(|value| (value.of as usize) < outline.values.len()));
            }
        }
    }
}
