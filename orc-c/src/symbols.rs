//! Sets and maps of symbols as C has them. The layouts are those of LLVM's `Orc.h`.

use std::ffi::c_int;

use uruk::core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, LookupKind, LookupSet, SymbolFlags, SymbolFlagsMap,
    SymbolLookupFlags, SymbolMap, SymbolName,
};

use crate::errors::Problem;
use crate::handles::Handle;
use crate::names::{self, Lent};

/// `LLVMJITSymbolFlags`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    generic: u8,
    target: u8,
}

/// Our flags, and the bits of `LLVMJITSymbolGenericFlags`.
const BITS: [(SymbolFlags, u8); 4] = [
    (SymbolFlags::EXPORTED, 1),
    (SymbolFlags::WEAK, 2),
    (SymbolFlags::CALLABLE, 4),
    (SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY, 8),
];

impl From<SymbolFlags> for Flags {
    fn from(flags: SymbolFlags) -> Self {
        let bits = BITS.iter().filter(|(flag, _)| flags.contains(*flag));
        Self { generic: bits.fold(0, |all, (_, bit)| all | bit), target: 0 }
    }
}

impl From<Flags> for SymbolFlags {
    fn from(flags: Flags) -> Self {
        let bits = BITS.iter().filter(|(_, bit)| flags.generic & bit != 0);
        bits.fold(Self::empty(), |all, (flag, _)| all | *flag)
    }
}

/// `LLVMOrcCSymbolFlagsMapPair`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FlagsMapPair {
    name: Handle,
    flags: Flags,
}

/// `LLVMOrcCSymbolMapPair`, with its `LLVMJITEvaluatedSymbol`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SymbolMapPair {
    name: Handle,
    address: u64,
    flags: Flags,
}

/// `LLVMOrcCSymbolAliasMapPair`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AliasMapPair {
    pub(crate) name: Handle,
    pub(crate) source: Handle,
    pub(crate) flags: Flags,
}

/// `LLVMOrcCLookupSetElement`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LookupSetElement {
    name: Handle,
    flags: c_int,
}

impl LookupSetElement {
    pub(crate) fn lend(name: &SymbolName, flags: SymbolLookupFlags, names: &mut Lent) -> Self {
        Self {
            name: names.lend(name),
            flags: c_int::from(flags == SymbolLookupFlags::WeaklyReferencedSymbol),
        }
    }

    /// The symbol and how it is wanted. Its name is released.
    pub(crate) fn take(self) -> Result<(SymbolName, SymbolLookupFlags), Problem> {
        let flags = match self.flags {
            0 => SymbolLookupFlags::RequiredSymbol,
            _ => SymbolLookupFlags::WeaklyReferencedSymbol,
        };
        Ok((names::take(self.name)?, flags))
    }
}

impl SymbolMapPair {
    pub(crate) fn lend(name: &SymbolName, definition: ExecutorSymbolDef, names: &mut Lent) -> Self {
        let (address, flags) = (definition.address.value(), definition.flags.into());
        Self { name: names.lend(name), address, flags }
    }
}

/// A map of addresses. Its names are released.
pub(crate) fn take_addresses(pairs: &[SymbolMapPair]) -> Result<SymbolMap, Problem> {
    let pair = |pair: &SymbolMapPair| {
        let definition = ExecutorSymbolDef::new(ExecutorAddr::new(pair.address), pair.flags.into());
        Ok((names::take(pair.name)?, definition))
    };
    all(pairs.iter().map(pair))
}

/// All or the first error. Each name is taken, also behind one that is bad.
pub(crate) fn all<T, C: FromIterator<T>>(
    taken: impl Iterator<Item = Result<T, Problem>>,
) -> Result<C, Problem> {
    taken.collect::<Vec<_>>().into_iter().collect()
}

/// A set of symbols to look up. Its names are released.
pub(crate) fn take_set(set: &[LookupSetElement]) -> Result<LookupSet, Problem> {
    all(set.iter().map(|element| element.take()))
}

/// A map of flags. Its names are released.
pub(crate) fn take_flags(pairs: &[FlagsMapPair]) -> Result<SymbolFlagsMap, Problem> {
    all(pairs.iter().map(|pair| Ok((names::take(pair.name)?, pair.flags.into()))))
}

/// The same for C, sorted by name.
pub(crate) fn lend_flags(symbols: &SymbolFlagsMap, names: &mut Lent) -> Vec<FlagsMapPair> {
    let mut symbols: Vec<_> = symbols.iter().map(|(name, flags)| (name.clone(), *flags)).collect();
    symbols.sort_by(|(one, _), (other, _)| one.cmp(other));
    symbols
        .iter()
        .map(|(name, flags)| FlagsMapPair { name: names.lend(name), flags: (*flags).into() })
        .collect()
}

/// The names of a list, which are released.
pub(crate) fn take_names(list: &[Handle]) -> Result<Vec<SymbolName>, Problem> {
    all(list.iter().map(|entry| names::take(*entry)))
}

/// `LLVMOrcJITDylibLookupFlags`.
pub(crate) fn dylib_flags(flags: c_int) -> JitDylibLookupFlags {
    match flags {
        0 => JitDylibLookupFlags::MatchExportedSymbolsOnly,
        _ => JitDylibLookupFlags::MatchAllSymbols,
    }
}

pub(crate) fn dylib_flags_for_c(flags: JitDylibLookupFlags) -> c_int {
    c_int::from(flags == JitDylibLookupFlags::MatchAllSymbols)
}

/// `LLVMOrcLookupKind`.
pub(crate) fn kind(kind: c_int) -> LookupKind {
    if kind == 0 { LookupKind::Static } else { LookupKind::DlSym }
}

pub(crate) fn kind_for_c(kind: LookupKind) -> c_int {
    c_int::from(kind == LookupKind::DlSym)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A C compiler for this machine says so; `tests/header.rs` has it asked again.
    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<FlagsMapPair>(), 16);
        assert_eq!((size_of::<SymbolMapPair>(), std::mem::offset_of!(SymbolMapPair, flags)), (24, 16));
        assert_eq!((size_of::<AliasMapPair>(), std::mem::offset_of!(AliasMapPair, flags)), (24, 16));
        assert_eq!(size_of::<LookupSetElement>(), 16);
    }

    #[test]
    fn flags_come_back_as_they_went() {
        for bits in 0..16 {
            let there = Flags { generic: bits, target: 0 };
            assert_eq!(Flags::from(SymbolFlags::from(there)).generic, bits);
        }
    }
}
