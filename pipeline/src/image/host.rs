//! [`HostParts`]: what a host adds to an image besides its files.
//!
//! | part | its use |
//! |---|---|
//! | sections | bytes of the host, which are mapped where the image is loaded |
//! | images below | images that have to be loaded before this one |
//! | code instances | compiled specializations, each with the definitions that it assumes |

use std::collections::HashMap;

use twox_hash::XxHash3_128;
use uruk_instances::CodeSignature;

use super::error::HostPartError;
use super::format::{PAGE_BYTES, Region};
use super::tables::TableWriter;
use super::units::UnitKey;

/// The alignment of sections: that of the lines of caches.
pub(super) const SECTION_ALIGN: u64 = 64;
/// Offsets in images are shorter.
pub(super) const SECTION_BYTES_MAX: u64 = 1 << 31;
/// No name and no id of an instance is longer.
const INSTANCE_BYTES_MAX: u64 = 1 << 16;

/// The parts that a host adds to an image besides its files.
#[derive(Debug, Default)]
pub struct HostParts {
    sections: Vec<(Box<str>, Vec<u8>)>,
    below: Vec<(Box<str>, [u8; 16])>,
    instances: Vec<BuiltInstance>,
    /// The numbers of the instances, by method and specialization.
    keys: HashMap<(Vec<u8>, Vec<u8>), usize>,
}

/// A code instance for an image: how a specialization of a method is called, and what its code assumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltInstance {
    /// The method, as the host names it in files.
    pub method: Vec<u8>,
    /// The specialization, as the host names it in files.
    pub specialization: Vec<u8>,
    /// Anything that the host wants to know of it.
    pub signature: Vec<u8>,
    /// The name of its entry for callers that know only the boxed convention.
    pub invoke: Box<str>,
    /// The name of its code, and how that is called; `None` if there is `invoke` alone.
    pub specptr: Option<(Box<str>, CodeSignature)>,
    /// The definitions that the code takes for granted, its own among them: method, specialization, and the key of the definition.
    pub assumptions: Vec<(Vec<u8>, Vec<u8>, UnitKey)>,
}

impl BuiltInstance {
    /// An instance that is called by `invoke` alone, and assumes nothing.
    pub fn new(
        method: impl Into<Vec<u8>>,
        specialization: impl Into<Vec<u8>>,
        invoke: impl Into<Box<str>>,
    ) -> Self {
        Self {
            method: method.into(),
            specialization: specialization.into(),
            signature: Vec::new(),
            invoke: invoke.into(),
            specptr: None,
            assumptions: Vec::new(),
        }
    }

    /// Adds the pair's other pointer.
    #[must_use]
    pub fn specptr(mut self, symbol: impl Into<Box<str>>, signature: CodeSignature) -> Self {
        self.specptr = Some((symbol.into(), signature));
        self
    }

    /// Adds bytes that the host wants to know of it.
    #[must_use]
    pub fn signature(mut self, signature: impl Into<Vec<u8>>) -> Self {
        self.signature = signature.into();
        self
    }

    /// Adds a definition that the code takes for granted: its own, or one that it contains code of.
    #[must_use]
    pub fn assumes(
        mut self,
        method: impl Into<Vec<u8>>,
        specialization: impl Into<Vec<u8>>,
        key: UnitKey,
    ) -> Self {
        self.assumptions.push((method.into(), specialization.into(), key));
        self
    }

    /// Its functions.
    fn symbols(&self) -> impl Iterator<Item = &str> {
        [&*self.invoke].into_iter().chain(self.specptr.as_ref().map(|(symbol, _)| &**symbol))
    }

    fn check(&self) -> Result<(), HostPartError> {
        self.symbols().try_for_each(check_name)?;
        let ids = [&self.method, &self.specialization, &self.signature];
        let assumed =
            self.assumptions.iter().flat_map(|(method, specialization, _)| [method, specialization]);
        ids.into_iter().chain(assumed).try_for_each(|bytes| {
            check_length("an id of a code instance", bytes.len() as u64, INSTANCE_BYTES_MAX)
        })
    }
}

impl HostParts {
    /// Adds a section.
    ///
    /// # Errors
    /// [`HostPartError`]: there is one of that name, it is longer than 2 GiB, or its name is empty or has a zero byte in it.
    pub fn add_section(&mut self, name: Box<str>, bytes: Vec<u8>) -> Result<(), HostPartError> {
        check_name(&name)?;
        check_length(&format!("section `{name}`"), bytes.len() as u64, SECTION_BYTES_MAX)?;
        if self.sections.iter().any(|(known, _)| *known == name) {
            return Err(HostPartError::Duplicate { name });
        }
        self.sections.push((name, bytes));
        Ok(())
    }

    /// Notes that the image is built on another one, with this name for messages.
    pub fn add_below(&mut self, name: Box<str>, id: [u8; 16]) {
        if !self.below.iter().any(|(_, known)| *known == id) {
            self.below.push((name, id));
        }
    }

    /// Adds a code instance.
    ///
    /// # Errors
    /// [`HostPartError`]: there is one for that method and specialization, or one of its ids is longer than 64 KiB.
    pub fn add_instance(&mut self, instance: BuiltInstance) -> Result<(), HostPartError> {
        instance.check()?;
        let key = (instance.method.clone(), instance.specialization.clone());
        if let Some(first) = self.keys.get(&key) {
            return Err(HostPartError::DuplicateInstance { invoke: self.instances[*first].invoke.clone() });
        }
        self.keys.insert(key, self.instances.len());
        self.instances.push(instance);
        Ok(())
    }

    /// The names of the functions of all instances.
    pub(super) fn functions(&self) -> impl Iterator<Item = &str> {
        self.instances.iter().flat_map(BuiltInstance::symbols)
    }

    /// Puts the sections behind `file`. Gives where each begins and how long it is.
    pub(super) fn append_sections(&self, file: &mut Vec<u8>) -> Vec<[u64; 2]> {
        let place = |(_, bytes): &(Box<str>, Vec<u8>)| {
            file.resize(file.len().next_multiple_of(SECTION_ALIGN as usize), 0);
            let at = file.len() as u64;
            file.extend_from_slice(bytes);
            [at, bytes.len() as u64]
        };
        debug_assert!((PAGE_BYTES).is_multiple_of(SECTION_ALIGN));
        self.sections.iter().map(place).collect()
    }

    /// Writes the tables, with the places of the sections.
    pub(super) fn write<'i>(&'i self, tables: &mut TableWriter<'i>, sections: &[[u64; 2]]) {
        for ((name, _), place) in self.sections.iter().zip(sections) {
            let name = tables.name(name);
            tables.halves([name, 0]);
            tables.words(*place);
        }
        tables.end(Region::Sections);
        for (name, id) in &self.below {
            let name = tables.name(name);
            tables.halves([name, 0]);
            tables.bytes(id);
        }
        tables.end(Region::Below);
        let mut first = 0;
        for instance in &self.instances {
            for bytes in [&instance.method, &instance.specialization, &instance.signature] {
                let place = tables.host_bytes(bytes);
                tables.halves(place);
            }
            let invoke = tables.name(&instance.invoke) + 1;
            let (specptr, is_specialized) = match &instance.specptr {
                Some((symbol, signature)) => {
                    (tables.name(symbol) + 1, *signature == CodeSignature::Specialized)
                }
                None => (0, false),
            };
            let assumptions = instance.assumptions.len() as u32;
            tables.halves([invoke, specptr, is_specialized.into(), first, assumptions, 0]);
            first += assumptions;
        }
        tables.end(Region::Instances);
        tables.halves(self.instance_index());
        tables.end(Region::InstanceIndex);
        for (method, specialization, key) in self.instances.iter().flat_map(|instance| &instance.assumptions)
        {
            for bytes in [method, specialization] {
                let place = tables.host_bytes(bytes);
                tables.halves(place);
            }
            tables.bytes(key);
        }
        tables.end(Region::Assumed);
    }

    /// Slots with an instance's number + 1, or 0. At least half of them are empty.
    fn instance_index(&self) -> Vec<u32> {
        if self.instances.is_empty() {
            return Vec::new();
        }
        let mut slots = vec![0; (2 * self.instances.len()).next_power_of_two()];
        for (instance, number) in self.instances.iter().zip(1..) {
            let mut slot =
                hash_of_instance(&instance.method, &instance.specialization) as usize & (slots.len() - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = number;
        }
        slots
    }
}

/// The slot of an instance in an index, of which the low bits count.
pub(super) fn hash_of_instance(method: &[u8], specialization: &[u8]) -> u32 {
    let mut hash = XxHash3_128::new();
    hash.write(&(method.len() as u32).to_le_bytes());
    hash.write(method);
    hash.write(specialization);
    hash.finish_128() as u32
}

fn check_name(name: &str) -> Result<(), HostPartError> {
    let is_sound = !name.is_empty() && !name.contains('\0');
    if is_sound { Ok(()) } else { Err(HostPartError::Name { name: name.into() }) }
}

fn check_length(what: &str, bytes: u64, bytes_max: u64) -> Result<(), HostPartError> {
    if bytes < bytes_max {
        return Ok(());
    }
    Err(HostPartError::TooLong { what: what.into(), bytes, bytes_max: bytes_max - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_a_name_of_its_own_and_is_shorter_than_two_gibibytes() {
        let mut parts = HostParts::default();
        parts.add_section("types".into(), vec![1]).expect("the name is free");
        let twice = parts.add_section("types".into(), vec![2]);
        assert_eq!(twice, Err(HostPartError::Duplicate { name: "types".into() }));
        for name in ["", "a\0b"] {
            assert!(
                matches!(parts.add_section(name.into(), vec![]), Err(HostPartError::Name { .. })),
                "{name:?}"
            );
        }
        // The system gives no memory for zeros until they are read.
        let long = parts.add_section("long".into(), vec![0; 1 << 31]).expect_err("no offset leads behind it");
        assert_eq!(
            long.to_string(),
            "section `long` is 2147483648 bytes long, and at most 2147483647 fit into an image"
        );
        assert!(check_length("a part", (1 << 31) - 1, SECTION_BYTES_MAX).is_ok());
    }

    #[test]
    fn a_method_and_a_specialization_have_one_instance() {
        let mut parts = HostParts::default();
        parts.add_instance(BuiltInstance::new("ab", "c", "first")).expect("it is new");
        parts.add_instance(BuiltInstance::new("a", "bc", "second")).expect("it is another one");
        let twice = parts.add_instance(BuiltInstance::new("ab", "c", "third"));
        assert_eq!(twice, Err(HostPartError::DuplicateInstance { invoke: "first".into() }));
        let long = parts.add_instance(BuiltInstance::new(vec![0; 1 << 16], "", "long"));
        assert!(matches!(long, Err(HostPartError::TooLong { .. })), "{long:?}");
    }
}
