//! Which module numbers are alive, and what their blocks start as.
//!
//! ```text
//!   63  62                    32 31                     0
//!   [1] [ generation of the slot ] [ slot                ]
//! ```
//!
//! A number is never given twice: a slot that is used again has a new generation.

use std::alloc::Layout;

use uruk_core::sync::Mutex;

use super::TlsError;

/// Set in every module number of ours. The C library counts its modules from 1.
pub(super) const OURS: u64 = 1 << 63;

/// The one number of everything in the reserve, whose offsets count from the thread pointer. Neither ours nor the C library's.
pub(super) const FIXED: u64 = 1 << 62;

const SLOTS_MAX: usize = 1 << 20;

/// What a thread's block starts as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) layout: Layout,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    image: Option<Image>,
}

#[derive(Debug)]
struct Registry {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Held for bookkeeping alone; never while memory is allocated for a thread, and never while program code runs.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { slots: Vec::new(), free: Vec::new() });

/// The slot in a module number.
pub(super) const fn slot_of(module: u64) -> usize {
    (module & 0xffff_ffff) as usize
}

/// Gives `image` a number.
pub(super) fn register(image: Image) -> Result<u64, TlsError> {
    let mut registry = REGISTRY.lock();
    let slot = match registry.free.pop() {
        Some(slot) => slot,
        None if registry.slots.len() < SLOTS_MAX => {
            registry.slots.push(Slot { generation: 0, image: None });
            (registry.slots.len() - 1) as u32
        }
        None => return Err(TlsError::Exhausted { limit: SLOTS_MAX }),
    };
    let entry = &mut registry.slots[slot as usize];
    entry.image = Some(image);
    Ok(OURS | u64::from(entry.generation) << 32 | u64::from(slot))
}

/// Ends the life of a number.
pub(super) fn unregister(module: u64) {
    let mut registry = REGISTRY.lock();
    let slot = slot_of(module);
    let entry = &mut registry.slots[slot];
    entry.image = None;
    entry.generation += 1;
    // A slot whose generations are used up is left alone, after two thousand million modules.
    if entry.generation < 1 << 31 {
        registry.free.push(slot as u32);
    }
}

/// What `module`'s blocks start as, if it is alive.
pub(super) fn image(module: u64) -> Option<Image> {
    let registry = REGISTRY.lock();
    let slot = registry.slots.get(slot_of(module))?;
    let alive = OURS | u64::from(slot.generation) << 32 | slot_of(module) as u64 == module;
    slot.image.filter(|_| alive)
}

/// The numbers that are alive.
pub(super) fn alive() -> Vec<u64> {
    let registry = REGISTRY.lock();
    let numbered = registry.slots.iter().enumerate().filter(|(_, slot)| slot.image.is_some());
    numbered.map(|(slot, entry)| OURS | u64::from(entry.generation) << 32 | slot as u64).collect()
}

/// Whether any number is alive.
pub(super) fn has_any() -> bool {
    let registry = REGISTRY.lock();
    registry.slots.len() > registry.free.len()
}
