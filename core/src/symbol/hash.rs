//! The hash of a text under a secret, which places names in a pool.
//!
//! Names come from objects and programs that the embedder did not write. An attacker who knows the hash of a table can choose
//! names that all fall into one place of it. Each name is then compared with all before it. So each pool has a secret of its
//! own, and colliding texts cannot be computed without it.
//!
//! ```text
//!  text   | x1 y1 | x2 y2 | ... | end of 16 bytes (overlaps what comes before) |
//!
//!  (a, b) := (first rotated by the length, second)
//!  for each block but the last:  (a, b) := (b, fold(a ^ x, third ^ y))
//!  hash := fold(a ^ front of the end, b ^ back of the end)
//! ```
//!
//! `fold` multiplies two words into two and gives the exclusive or of these.
//!
//! **Invariant:** both factors of each product hold a word of the secret or a product from before, and these are independent of
//! each other. With one factor known, a text could make it 0, and the other would not matter; with a known difference between
//! them, a text could exchange them. With a secret that is only added to a hash, texts that collide would collide under each.

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
use std::hash::{BuildHasher, RandomState};

/// Three secret words.
pub(super) struct TextHasher {
    first: u64,
    second: u64,
    third: u64,
}

/// So many bytes go into one product.
const BLOCK: usize = 2 * size_of::<u64>();

impl TextHasher {
    /// A secret of its own: the standard library's keys come from the system, and differ from one to the next.
    #[cfg(not(any(uruk_loom, uruk_shuttle)))]
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        let [first, second, third] = [0_u8, 1, 2].map(|word| random.hash_one(word));
        Self { first, second, third }
    }

    /// A model replays its orders, so names fall into the same shards each time.
    #[cfg(any(uruk_loom, uruk_shuttle))]
    pub(super) fn new() -> Self {
        Self { first: 0x9E37_79B9_7F4A_7C15, second: 0xD1B5_4A32_D192_ED03, third: 0x8CB9_2BA7_2F3D_8DD7 }
    }

    #[inline]
    pub(super) fn hash(&self, text: &str) -> u64 {
        let bytes = text.as_bytes();
        // Texts of different lengths may have the same words below.
        let mut a = self.first.rotate_right(bytes.len() as u32);
        let mut b = self.second;
        let (front, back) = if let Some(end) = bytes.last_chunk::<BLOCK>() {
            let (blocks, _) = bytes[..bytes.len() - 1].as_chunks();
            for block in blocks {
                let (x, y) = halves(block);
                (a, b) = (b, fold(a ^ x, self.third ^ y));
            }
            halves(end)
        } else {
            ends(bytes)
        };
        fold(a ^ front, b ^ back)
    }
}

/// Two words that tell texts of the same length below a block apart.
#[inline]
fn ends(bytes: &[u8]) -> (u64, u64) {
    if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u64::from_le_bytes(*front), u64::from_le_bytes(*back))
    } else if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u32::from_le_bytes(*front).into(), u32::from_le_bytes(*back).into())
    } else {
        match *bytes {
            [] => (0, 0),
            [front, .., back] => (front.into(), u64::from(bytes[bytes.len() / 2]) << 8 | u64::from(back)),
            [only] => (only.into(), 0),
        }
    }
}

#[inline]
fn halves(block: &[u8; BLOCK]) -> (u64, u64) {
    let block = u128::from_le_bytes(*block);
    (block as u64, (block >> 64) as u64)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_in_one_byte_or_in_length_differ_in_their_hash() {
        let hasher = TextHasher::new();
        let mut hashes = HashSet::new();
        for length in 0..100 {
            let text = "a".repeat(length);
            assert!(hashes.insert(hasher.hash(&text)), "{length} bytes");
            for at in 0..length {
                let other = format!("{}b{}", &text[..at], &text[at + 1..]);
                assert!(hashes.insert(hasher.hash(&other)), "byte {at} of {length}");
            }
        }
    }

    #[test]
    fn each_word_of_the_secret_counts() {
        let hasher = TextHasher { first: 1 << 60 | 5, second: 1 << 61 | 3, third: 1 << 62 | 7 };
        for text in ["", "a", "abcd", "abcdefgh", "abcdefghijklmnop", "abcdefghijklmnopq"] {
            let other = |first, second, third| {
                let TextHasher { first: a, second: b, third: c } = hasher;
                TextHasher { first: a ^ first, second: b ^ second, third: c ^ third }.hash(text)
            };
            assert_ne!(other(2, 0, 0), hasher.hash(text), "first, {text}");
            assert_ne!(other(0, 2, 0), hasher.hash(text), "second, {text}");
            assert_eq!(other(0, 0, 2) != hasher.hash(text), text.len() > BLOCK, "third, {text}");
        }
    }
}
