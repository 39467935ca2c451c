//! The interface of a module as bytes, for a cache.
//!
//! Numbers are little-endian. A name is its length in bytes (4) and its text:
//!
//! ```text
//!  offset  size
//!       0     8  "urukifc\n"
//!       8     4  version of the form: 1
//!      12     4  what the module does, see `ModuleBits`
//!      16     4  how many definitions
//!      20     4  how many undefined names
//!      24        definitions: SymbolFlags (1), see `SymbolBits` (1), name, and if it is tentative: size (8), alignment (8)
//!                undefined names
//! ```
//!
//! Holds: reading gives the values that were written. Bytes of any other form are [`Damage::Form`].

use uruk_core::SymbolFlags;

use super::symbols::{ModuleInterface, ModuleSymbol};
use crate::cache::Damage;
use crate::object::CommonExtent;

const MAGIC: [u8; 8] = *b"urukifc\n";
const VERSION: u32 = 2;

/// The shortest definition: flags, bits and an empty name.
const SYMBOL_BYTES_MIN: usize = 6;
const NAME_BYTES_MIN: usize = 4;

bitflags::bitflags! {
    #[derive(Clone, Copy)]
    struct ModuleBits: u32 {
        const INITIALIZERS = 1;
        const FINALIZERS = 1 << 1;
        const SHARES_SECTIONS = 1 << 2;
        const THREAD_LOCALS = 1 << 3;
        const ASSEMBLY = 1 << 4;
        const CODE_SHARES_SECTIONS = 1 << 5;
    }

    #[derive(Clone, Copy)]
    struct SymbolBits: u8 {
        const LINKONCE = 1;
        const TENTATIVE = 1 << 1;
    }
}

impl ModuleInterface {
    /// The interface as [`from_bytes`](Self::from_bytes) reads it, in this version of the engine.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self {
            symbols,
            undefined,
            has_initializers,
            has_finalizers,
            shares_sections,
            code_shares_sections,
            has_thread_locals,
            has_assembly,
        } = self;
        let mut bits = ModuleBits::empty();
        bits.set(ModuleBits::INITIALIZERS, *has_initializers);
        bits.set(ModuleBits::FINALIZERS, *has_finalizers);
        bits.set(ModuleBits::SHARES_SECTIONS, *shares_sections);
        bits.set(ModuleBits::CODE_SHARES_SECTIONS, *code_shares_sections);
        bits.set(ModuleBits::THREAD_LOCALS, *has_thread_locals);
        bits.set(ModuleBits::ASSEMBLY, *has_assembly);
        let mut writer = FieldWriter(MAGIC.to_vec());
        writer.number(VERSION).number(bits.bits());
        writer.length(symbols.len()).length(undefined.len());
        for ModuleSymbol { name, flags, common, linkonce } in symbols {
            let mut bits = SymbolBits::empty();
            bits.set(SymbolBits::LINKONCE, *linkonce);
            bits.set(SymbolBits::TENTATIVE, common.is_some());
            writer.bytes(&[flags.bits(), bits.bits()]).name(name);
            if let Some(CommonExtent { size_bytes, align }) = common {
                writer.bytes(&size_bytes.to_le_bytes()).bytes(&align.to_le_bytes());
            }
        }
        undefined.iter().for_each(|name| {
            writer.name(name);
        });
        writer.0
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    /// [`Damage::Form`] for all other bytes, also those of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        read(bytes).ok_or(Damage::Form)
    }
}

fn read(bytes: &[u8]) -> Option<ModuleInterface> {
    let mut reader = FieldReader(bytes.strip_prefix(&MAGIC)?);
    if reader.number()? != VERSION {
        return None;
    }
    let bits = ModuleBits::from_bits(reader.number()?)?;
    let (symbols, undefined) = (reader.number()?, reader.number()?);
    let symbols = reader.list(symbols, SYMBOL_BYTES_MIN, FieldReader::symbol)?;
    let undefined = reader.list(undefined, NAME_BYTES_MIN, FieldReader::name)?;
    reader.0.is_empty().then_some(ModuleInterface {
        symbols,
        undefined,
        has_initializers: bits.contains(ModuleBits::INITIALIZERS),
        has_finalizers: bits.contains(ModuleBits::FINALIZERS),
        shares_sections: bits.contains(ModuleBits::SHARES_SECTIONS),
        code_shares_sections: bits.contains(ModuleBits::CODE_SHARES_SECTIONS),
        has_thread_locals: bits.contains(ModuleBits::THREAD_LOCALS),
        has_assembly: bits.contains(ModuleBits::ASSEMBLY),
    })
}

/// Bytes to which fields are added.
pub(super) struct FieldWriter(pub(super) Vec<u8>);

impl FieldWriter {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn number(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(super) fn length(&mut self, length: usize) -> &mut Self {
        // A larger number of names does not fit into the module that has them.
        self.number(u32::try_from(length).unwrap_or(u32::MAX))
    }

    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        self.length(name.len()).bytes(name.as_bytes())
    }
}

/// The bytes that are left to read. Each method takes from the beginning.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads `count` of something that takes at least `bytes_min` each, so that a count too large asks for no memory.
    pub(super) fn list<T>(
        &mut self,
        count: u32,
        bytes_min: usize,
        read: fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.0.len() / bytes_min)?;
        (0..count).map(|_| read(self)).collect()
    }

    pub(super) fn name(&mut self) -> Option<Box<str>> {
        let length = usize::try_from(self.number()?).ok()?;
        str::from_utf8(self.take(length)?).ok().map(Box::from)
    }

    fn symbol(&mut self) -> Option<ModuleSymbol> {
        let [flags, bits] = self.array()?;
        let (flags, bits) = (SymbolFlags::from_bits(flags)?, SymbolBits::from_bits(bits)?);
        let name = self.name()?;
        let common = match bits.contains(SymbolBits::TENTATIVE) {
            true => Some(CommonExtent {
                size_bytes: u64::from_le_bytes(self.array()?),
                align: u64::from_le_bytes(self.array()?),
            }),
            false => None,
        };
        Some(ModuleSymbol { name, flags, common, linkonce: bits.contains(SymbolBits::LINKONCE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> ModuleInterface {
        let extent = CommonExtent { size_bytes: 1 << 40, align: 64 };
        let symbol =
            |name: &str, flags, common, linkonce| ModuleSymbol { name: name.into(), flags, common, linkonce };
        ModuleInterface {
            symbols: vec![
                symbol("strong", SymbolFlags::EXPORTED | SymbolFlags::CALLABLE, None, false),
                symbol("inline", SymbolFlags::EXPORTED | SymbolFlags::WEAK, None, true),
                symbol("tentative", SymbolFlags::COMMON, Some(extent), false),
                symbol("größe", SymbolFlags::THREAD_LOCAL, None, false),
            ],
            undefined: vec!["puts".into(), "".into()],
            has_finalizers: true,
            has_assembly: true,
            ..ModuleInterface::default()
        }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let switches: [fn(&mut ModuleInterface); 6] = [
            |interface| interface.has_initializers ^= true,
            |interface| interface.has_finalizers ^= true,
            |interface| interface.shares_sections ^= true,
            |interface| interface.code_shares_sections ^= true,
            |interface| interface.has_thread_locals ^= true,
            |interface| interface.has_assembly ^= true,
        ];
        let mut interface = interface();
        for switch in switches {
            switch(&mut interface);
            assert_eq!(ModuleInterface::from_bytes(&interface.to_bytes()), Ok(interface.clone()));
        }
        let empty = ModuleInterface::default();
        assert_eq!(ModuleInterface::from_bytes(&empty.to_bytes()), Ok(empty));
    }

    #[test]
    fn what_is_cut_off_or_longer_is_refused() {
        let bytes = interface().to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(ModuleInterface::from_bytes(&bytes[..end]), Err(Damage::Form), "cut off at {end}");
        }
        assert_eq!(ModuleInterface::from_bytes(&[&bytes[..], &[0]].concat()), Err(Damage::Form));
    }

    #[test]
    fn no_changed_byte_makes_it_fail_or_ask_for_much_memory() {
        let bytes = interface().to_bytes();
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let read = ModuleInterface::from_bytes(&changed);
                // The first sixteen bytes have one form only, up to the bits of the module.
                assert!(at >= 12 || value == bytes[at] || read == Err(Damage::Form), "byte {at} is {value}");
                // Values that can be read are written as they were.
                assert!(read.is_err() || read.is_ok_and(|read| read.to_bytes() == changed));
            }
        }
    }
}
