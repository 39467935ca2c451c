//! The properties of a symbol besides its address.

bitflags::bitflags! {
    /// Linkage and kind of a symbol.
    ///
    /// `WEAK` and `COMMON` matter while definitions compete; resolution compares flags without them. An answer still says `WEAK`.
    ///
    /// ORC: `JITSymbolFlags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SymbolFlags: u8 {
        /// Visible to lookups that match exported symbols only. Hidden symbols lack it.
        const EXPORTED = 1;
        /// Yields to a strong definition that arrives before anybody searched for it.
        const WEAK = 1 << 1;
        /// A tentative definition: weak, without contents of its own.
        const COMMON = 1 << 2;
        /// Code rather than data.
        const CALLABLE = 1 << 3;
        /// Exists so that looking it up runs its unit; it never has an address.
        const MATERIALIZATION_SIDE_EFFECTS_ONLY = 1 << 4;
        /// The address is a number, not a place: it does not move with the process image.
        const ABSOLUTE = 1 << 5;
        /// A thread-local variable. Its address is that of its `tls_index` descriptor, a constant
        /// `{module, offset}` pair in memory that is handed to `__tls_get_addr`.
        const THREAD_LOCAL = 1 << 6;
    }
}

impl SymbolFlags {
    /// An alias whose source was removed after it had become Ready. Ours alone, and never told: among the flags, records have it too.
    pub(crate) const STRANDED: Self = Self::from_bits_retain(1 << 7);

    /// Whether the definition yields to a strong one.
    pub const fn is_weak_or_common(self) -> bool {
        self.intersects(Self::WEAK.union(Self::COMMON))
    }

    /// The flags that must agree between a promise and its fulfilment.
    #[must_use]
    pub const fn without_weak_and_common(self) -> Self {
        self.difference(Self::WEAK.union(Self::COMMON))
    }

    /// The flags of a symbol that has an address: it is not tentative any more.
    pub(crate) const fn without_common(self) -> Self {
        self.difference(Self::COMMON)
    }
}
