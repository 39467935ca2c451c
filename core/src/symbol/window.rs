//! Tags compared several at once.
//!
//! The plain loop below compiles to two comparisons of four tags each in some places, and to eight times six steps in
//! others: a fifth of the cost of interning. So it is spelled out where the processor is known.

/// So many tags are compared at once.
pub(super) const WINDOW: usize = 8;

/// One bit for each tag of the window that is `tag`.
#[inline(always)]
pub(super) fn equal(window: &[u32; WINDOW], tag: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: what it needs of the processor, SSE2, every x86-64 has.
    return unsafe { vector::equal(window, tag) };
    #[cfg(not(target_arch = "x86_64"))]
    return mask(window, |other| other == tag);
}

/// One bit for each tag of the window that ends a search for `tag`: a larger one, or 0, which is a hole. `tag` is not 0.
#[inline(always)]
pub(super) fn ending(window: &[u32; WINDOW], tag: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `equal`.
    return unsafe { vector::ending(window, tag) };
    #[cfg(not(target_arch = "x86_64"))]
    return mask(window, |other| ends(other, tag));
}

/// A hole becomes the largest number.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn ends(other: u32, tag: u32) -> bool {
    other.wrapping_sub(1) >= tag
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn mask(window: &[u32; WINDOW], test: impl Fn(u32) -> bool) -> u32 {
    let mut mask = 0;
    for (bit, &tag) in window.iter().enumerate() {
        mask |= u32::from(test(tag)) << bit;
    }
    mask
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cmpeq_epi32, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi32,
    };

    use super::WINDOW;

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn equal(window: &[u32; WINDOW], tag: u32) -> u32 {
        let [low, high] = halves(window);
        let tag = _mm_set1_epi32(tag.cast_signed());
        bits(_mm_cmpeq_epi32(low, tag), _mm_cmpeq_epi32(high, tag))
    }

    /// Numbers are compared with a sign, so all of them move by as much as makes holes the largest and 1 the smallest.
    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn ending(window: &[u32; WINDOW], tag: u32) -> u32 {
        let by = _mm_set1_epi32(i32::MAX);
        let moved = |tags| _mm_add_epi32(tags, by);
        let ([low, high], tag) = (halves(window), moved(_mm_set1_epi32(tag.cast_signed())));
        bits(_mm_cmpgt_epi32(moved(low), tag), _mm_cmpgt_epi32(moved(high), tag))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn halves(window: &[u32; WINDOW]) -> [__m128i; 2] {
        let [a, b, c, d, e, f, g, h] = window.map(u32::cast_signed);
        [_mm_set_epi32(d, c, b, a), _mm_set_epi32(h, g, f, e)]
    }

    /// One bit for each number of which all bits are set, of those of which none is.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn bits(low: __m128i, high: __m128i) -> u32 {
        let words = _mm_packs_epi32(low, high);
        _mm_movemask_epi8(_mm_packs_epi16(words, words)).cast_unsigned() & 0xff
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag() -> impl Strategy<Value = u32> {
        prop_oneof![0..4u32, (1 << 31) - 2..(1 << 31) + 2u32, u32::MAX - 2..=u32::MAX, any::<u32>()]
    }

    proptest! {
        #[test]
        fn windows_are_compared_tag_by_tag(window in prop::array::uniform8(tag()), tag in tag()) {
            let tag = tag.max(1);
            prop_assert_eq!(equal(&window, tag), mask(&window, |other| other == tag));
            prop_assert_eq!(ending(&window, tag), mask(&window, |other| ends(other, tag)));
        }
    }
}
