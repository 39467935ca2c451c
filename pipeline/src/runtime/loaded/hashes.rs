//! The tables by which the dynamic linker finds a symbol of a loaded object by its name.

use std::ffi::CStr;
use std::ptr;

/// The word at `index` of a table of hashes.
fn word(table: u64, index: u64) -> u32 {
    // SAFETY: callers follow the layout of such a table, which the dynamic linker has used.
    unsafe { ptr::with_exposed_provenance::<u32>((table + 4 * index) as usize).read() }
}

/// Asks `definition` for the symbols that may have `name`, by a `DT_GNU_HASH` table.
pub(super) fn in_hashes<T>(table: u64, name: &CStr, definition: impl Fn(u32) -> Option<T>) -> Option<T> {
    let name = name.to_bytes().iter();
    let hash = name.fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
    let (buckets, first, bloom_words) = (word(table, 0), word(table, 1), word(table, 2));
    let buckets_at = 4 + 2 * u64::from(bloom_words);
    let chain_at = buckets_at + u64::from(buckets);
    let mut index = word(table, buckets_at + u64::from(hash.checked_rem(buckets)?));
    while index >= first && index != 0 {
        let entry = word(table, chain_at + u64::from(index - first));
        if entry | 1 == hash | 1
            && let Some(found) = definition(index)
        {
            return Some(found);
        }
        if entry & 1 != 0 {
            break;
        }
        index += 1;
    }
    None
}

/// The same by a `DT_HASH` table.
pub(super) fn in_older_hashes<T>(
    table: u64,
    name: &CStr,
    definition: impl Fn(u32) -> Option<T>,
) -> Option<T> {
    let buckets = word(table, 0);
    let bucket = u64::from(older_hash(name).checked_rem(buckets)?);
    let mut index = word(table, 2 + bucket);
    while index != 0 {
        if let Some(found) = definition(index) {
            return Some(found);
        }
        index = word(table, 2 + u64::from(buckets) + u64::from(index));
    }
    None
}

/// The hash of a name in a `DT_HASH` table.
pub(in crate::runtime) fn older_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0_u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
