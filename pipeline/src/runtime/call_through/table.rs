//! The table before the stubs of a unit: by it a stub's number, and its data, follow from its address.

/// Stands in code, right before the first stub. The linker fills in the addresses.
#[repr(C)]
pub(crate) struct StubTable {
    /// The descriptor of the first stub, with those of the others behind it.
    descriptors: u64,
    /// The word that the stubs load, if they are a group. Zero otherwise.
    root: u64,
    count: u64,
    stub_bytes: u32,
    descriptor_bytes: u32,
}

impl StubTable {
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
    pub(crate) const DESCRIPTORS: u64 = std::mem::offset_of!(Self, descriptors) as u64;
    pub(crate) const ROOT: u64 = std::mem::offset_of!(Self, root) as u64;

    /// The bytes of one without addresses.
    pub(crate) fn bytes(count: usize, stub_bytes: u32, descriptor_bytes: u64) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        let descriptor_bytes = u32::try_from(descriptor_bytes).expect("a descriptor has a few words");
        let mut write = |offset: usize, value: &[u8]| bytes[offset..][..value.len()].copy_from_slice(value);
        write(std::mem::offset_of!(Self, count), &(count as u64).to_le_bytes());
        write(std::mem::offset_of!(Self, stub_bytes), &stub_bytes.to_le_bytes());
        write(std::mem::offset_of!(Self, descriptor_bytes), &descriptor_bytes.to_le_bytes());
        bytes
    }

    /// The number of the stub that begins at an address.
    pub(super) fn number(&self, stub: u64) -> Option<u32> {
        let first = std::ptr::from_ref(self).addr() as u64 + Self::BYTES;
        let offset = stub.checked_sub(first)?;
        let (number, rest) = (offset / u64::from(self.stub_bytes), offset % u64::from(self.stub_bytes));
        if rest == 0 && number < self.count { u32::try_from(number).ok() } else { None }
    }

    /// The address of the word that the stubs load, if they are a group.
    pub(super) fn root(&self) -> Option<u64> {
        (self.root != 0).then_some(self.root)
    }

    /// How many stubs there are.
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn descriptor_bytes(&self) -> u64 {
        self.descriptor_bytes.into()
    }

    /// The address of a stub's descriptor.
    pub(super) fn descriptor(&self, number: u32) -> u64 {
        self.descriptors + u64::from(number) * self.descriptor_bytes()
    }
}
