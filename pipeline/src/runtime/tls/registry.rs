//! The module numbers that are alive, and the initial contents of their blocks.
//!
//! ```text
//!   63  62                    32 31                     0
//!   [1] [ generation of the slot ] [ slot                ]
//! ```
//!
//! A number is never given twice: a slot that is used again has a new generation.

use std::alloc::Layout;
use std::ptr;

use super::TlsError;
use crate::runtime::forks::{LockOrder, RuntimeLock};

/// Set in every module number of ours. The C library counts its modules from 1.
pub(super) const OURS: u64 = 1 << 63;

/// The one number of everything in the reserve, whose offsets count from the thread pointer. Neither ours nor the C library's.
pub(crate) const FIXED: u64 = 1 << 62;

const SLOTS_MAX: usize = 1 << 20;

/// The initial contents of a thread's block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) layout: Layout,
}

#[derive(Debug)]
struct ModuleSlot {
    generation: u32,
    /// `None` from when the number is given until the image is written, and when no number is alive.
    image: Option<Image>,
}

impl ModuleSlot {
    /// The number of this slot, which is `slot`, in its present generation.
    fn module(&self, slot: usize) -> u64 {
        OURS | u64::from(self.generation) << 32 | slot as u64
    }
}

#[derive(Debug)]
pub(in crate::runtime) struct Registry {
    slots: Vec<ModuleSlot>,
    free: Vec<u32>,
}

impl Registry {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// A number that nothing has.
    pub(super) fn take(&mut self) -> Result<u64, TlsError> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(ModuleSlot { generation: 0, image: None });
                (self.slots.len() - 1) as u32
            }
            None => return Err(TlsError::Exhausted { limit: SLOTS_MAX }),
        };
        Ok(self.slots[slot as usize].module(slot as usize))
    }

    /// Ends the life of a number.
    pub(super) fn give_back(&mut self, module: u64) {
        let slot = slot_of(module);
        let entry = &mut self.slots[slot];
        entry.image = None;
        entry.generation += 1;
        // A slot whose generations are used up is left alone, after two thousand million modules.
        if entry.generation < 1 << 31 {
            self.free.push(slot as u32);
        }
    }

    /// Takes a number that another registry has taken. `false` if it is none, or is alive.
    fn adopt(&mut self, module: u64) -> bool {
        let (slot, generation) = (slot_of(module), (module & !OURS) >> 32);
        if module & OURS == 0 || slot >= SLOTS_MAX || generation >= 1 << 31 {
            return false;
        }
        while self.slots.len() <= slot {
            self.free.push(self.slots.len() as u32);
            self.slots.push(ModuleSlot { generation: 0, image: None });
        }
        let Some(free) = self.free.iter().rposition(|&free| free as usize == slot) else { return false };
        self.free.swap_remove(free);
        self.slots[slot].generation = generation as u32;
        true
    }

    fn image(&self, module: u64) -> Option<Image> {
        let slot = slot_of(module);
        let entry = self.slots.get(slot)?;
        entry.image.filter(|_| entry.module(slot) == module)
    }
}

/// Held for bookkeeping, and while a block gets its initial values: the removal of a module waits for that, and unmaps the image
/// afterwards. Never held while memory is allocated for a thread, and never while program code runs.
static REGISTRY: RuntimeLock<Registry> = RuntimeLock::new(LockOrder::TlsModules, Registry::new());

/// The slot in a module number.
pub(super) const fn slot_of(module: u64) -> usize {
    (module & 0xffff_ffff) as usize
}

/// Gives a number to a module whose image is yet to be written: threads that start meanwhile must not copy it.
pub(super) fn register() -> Result<u64, TlsError> {
    REGISTRY.lock().take()
}

/// The same with the number that another process has given the module. `false` if that is none, or is alive.
pub(super) fn adopt(module: u64) -> bool {
    REGISTRY.lock().adopt(module)
}

/// Says what the blocks of `module` start as, from now on.
pub(super) fn set_image(module: u64, image: Image) {
    REGISTRY.lock().slots[slot_of(module)].image = Some(image);
}

/// Ends the life of a number.
pub(super) fn unregister(module: u64) {
    REGISTRY.lock().give_back(module);
}

/// The layout of blocks of `module`, if it is alive and has its image.
pub(super) fn layout(module: u64) -> Option<Layout> {
    Some(REGISTRY.lock().image(module)?.layout)
}

/// Copies the image of `module` to `block`. `false` if the module has gone.
///
/// # Safety
/// The block has the [`layout`] of the module, and is the caller's.
pub(super) unsafe fn copy_image(module: u64, block: *mut u8) -> bool {
    let registry = REGISTRY.lock();
    let Some(Image { address, len, .. }) = registry.image(module) else { return false };
    // SAFETY: the image can be read until the module is unregistered, which waits for the lock; the block is at least as
    // long, and the caller's.
    unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(address as usize), block, len) };
    true
}

/// The first number that is alive, and has its image, in a slot from `first` on.
pub(super) fn next_alive(first: usize) -> Option<u64> {
    let registry = REGISTRY.lock();
    let mut slots = registry.slots.iter().enumerate().skip(first);
    slots.find(|(_, entry)| entry.image.is_some()).map(|(slot, entry)| entry.module(slot))
}

/// Whether any number is alive.
pub(super) fn has_any() -> bool {
    let registry = REGISTRY.lock();
    registry.slots.len() > registry.free.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that starts asks for the layout first, and then makes room. Meanwhile the module may go, its memory with it, and
    /// its slot to another.
    #[test]
    fn the_image_of_a_module_that_went_meanwhile_is_not_copied() {
        static IMAGE: u64 = 9;
        let (layout, address) = (Layout::new::<u64>(), (&raw const IMAGE).expose_provenance() as u64);
        let gone = register().expect("a slot is free");
        set_image(gone, Image { address, len: 8, layout });
        assert_eq!(super::layout(gone), Some(layout));
        unregister(gone);
        let next = register().expect("a slot is free");
        let mut block = 7_u64;
        // SAFETY: the block has the layout.
        assert!(!unsafe { copy_image(gone, (&raw mut block).cast()) });
        assert_eq!((block, super::layout(next)), (7, None));
        unregister(next);
    }

    #[test]
    fn numbers_of_another_registry_are_taken_as_they_are() {
        let (mut there, mut here) = (Registry::new(), Registry::new());
        let numbers: Vec<u64> = (0..3).map(|_| there.take().expect("there are many")).collect();
        assert!(here.adopt(numbers[2]) && here.adopt(numbers[0]));
        assert!(!here.adopt(numbers[2]), "it is alive");
        there.give_back(numbers[2]);
        here.give_back(numbers[2]);
        let again = there.take().expect("there are many");
        assert_ne!(again, numbers[2]);
        assert!(here.adopt(again));
        let [no_number, beyond, worn_out] = [7, OURS | SLOTS_MAX as u64, OURS | 1 << 62];
        assert!([no_number, beyond, worn_out].iter().all(|&module| !here.adopt(module)));
    }
}
