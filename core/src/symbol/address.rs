//! Addresses in the process that executes the code.

use std::fmt;

use crate::SymbolFlags;

/// An address in the executing process. A plain number: it carries no permission to dereference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExecutorAddr(u64);

impl ExecutorAddr {
    /// The null address: what an undefined weak symbol resolves to.
    pub const NULL: Self = Self(0);

    /// Wraps a raw address.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The address of what `pointer` points to.
    pub fn from_ptr<T: ?Sized>(pointer: *const T) -> Self {
        Self(pointer.cast::<u8>() as u64)
    }

    /// The raw value.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The address as a pointer of this process. Making one is safe; using it is the caller's affair.
    pub fn to_ptr<T>(self) -> *mut T {
        self.0 as usize as *mut T
    }

    /// Whether this is [`ExecutorAddr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on, wrapping as hardware does.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for ExecutorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for ExecutorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The answer of a lookup for one symbol: its address and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorSymbolDef {
    /// Where the symbol is.
    pub address: ExecutorAddr,
    /// The symbol's flags.
    pub flags: SymbolFlags,
}

impl ExecutorSymbolDef {
    /// Pairs an address with its flags.
    pub const fn new(address: ExecutorAddr, flags: SymbolFlags) -> Self {
        Self { address, flags }
    }
}
