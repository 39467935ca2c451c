//! Features: the instruction sets that code uses, found by decoding it, and those that this processor has.

use iced_x86::{CpuidFeature, Decoder, DecoderError, DecoderOptions, Instruction, Mnemonic, OpKind};

/// A set of instruction sets. The number of each is part of the format of images: numbers are added, and never change.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u128);

/// Declares the instruction sets: number, LLVM's name, the standard library's, and those of the decoder.
macro_rules! features {
    ($($number:literal $name:literal $detected:tt [$($decoded:ident)*];)*) => {
        /// Names by number, and whether this processor has the instruction set.
        const KNOWN: &[(u32, &str, fn() -> bool)] = &[$(($number, $name, || has_feature!($detected))),*];

        /// The number of an instruction set that the decoder knows.
        const fn number(decoded: CpuidFeature) -> Option<u32> {
            match decoded {
                $($(CpuidFeature::$decoded)|* => Some($number),)*
                _ => None,
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! has_feature {
    ($name:tt) => {
        std::arch::is_x86_feature_detected!($name)
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! has_feature {
    ($name:tt) => {
        false
    };
}

features! {
    0 "sse3" "sse3" [SSE3];
    1 "ssse3" "ssse3" [SSSE3];
    2 "sse4.1" "sse4.1" [SSE4_1];
    3 "sse4.2" "sse4.2" [SSE4_2];
    4 "popcnt" "popcnt" [POPCNT];
    5 "cx16" "cmpxchg16b" [CMPXCHG16B];
    6 "avx" "avx" [AVX];
    7 "avx2" "avx2" [AVX2];
    8 "bmi" "bmi1" [BMI1];
    9 "bmi2" "bmi2" [BMI2];
    10 "f16c" "f16c" [F16C];
    11 "fma" "fma" [FMA];
    12 "lzcnt" "lzcnt" [LZCNT];
    13 "movbe" "movbe" [MOVBE];
    14 "xsave" "xsave" [XSAVE];
    15 "avx512f" "avx512f" [AVX512F];
    16 "avx512bw" "avx512bw" [AVX512BW];
    17 "avx512cd" "avx512cd" [AVX512CD];
    18 "avx512dq" "avx512dq" [AVX512DQ];
    19 "avx512vl" "avx512vl" [AVX512VL];
    20 "aes" "aes" [AES];
    21 "pclmul" "pclmulqdq" [PCLMULQDQ];
    22 "vaes" "vaes" [VAES];
    23 "vpclmulqdq" "vpclmulqdq" [VPCLMULQDQ];
    24 "sha" "sha" [SHA];
    25 "gfni" "gfni" [GFNI];
    26 "avx512ifma" "avx512ifma" [AVX512_IFMA];
    27 "avx512vbmi" "avx512vbmi" [AVX512_VBMI];
    28 "avx512vbmi2" "avx512vbmi2" [AVX512_VBMI2];
    29 "avx512vnni" "avx512vnni" [AVX512_VNNI];
    30 "avx512bitalg" "avx512bitalg" [AVX512_BITALG];
    31 "avx512vpopcntdq" "avx512vpopcntdq" [AVX512_VPOPCNTDQ];
    32 "avx512bf16" "avx512bf16" [AVX512_BF16];
    33 "avx512fp16" "avx512fp16" [AVX512_FP16];
    34 "avx512vp2intersect" "avx512vp2intersect" [AVX512_VP2INTERSECT];
    35 "avxvnni" "avxvnni" [AVX_VNNI];
    36 "adx" "adx" [ADX];
    37 "rdrnd" "rdrand" [RDRAND];
    38 "rdseed" "rdseed" [RDSEED];
    39 "sse4a" "sse4a" [SSE4A];
    40 "tbm" "tbm" [TBM];
    41 "rtm" "rtm" [RTM];
    42 "avxifma" "avxifma" [AVX_IFMA];
    43 "avxneconvert" "avxneconvert" [AVX_NE_CONVERT];
    44 "avxvnniint8" "avxvnniint8" [AVX_VNNI_INT8];
    45 "avxvnniint16" "avxvnniint16" [AVX_VNNI_INT16];
    46 "xsaveopt" "xsaveopt" [XSAVEOPT];
    47 "xsavec" "xsavec" [XSAVEC];
}

/// The instruction sets without a number that count for nothing, by LLVM's names: those that all processors have, and those that no compiler uses
/// without being asked.
const UNCOUNTED: &[&str] = &[
    "64bit",
    "avx10.1",
    "cldemote",
    "clflushopt",
    "clwb",
    "clzero",
    "cmov",
    "cmpccxadd",
    "crc32",
    "cx8",
    "enqcmd",
    "evex512",
    "fsgsbase",
    "fxsr",
    "hreset",
    "invpcid",
    "kl",
    "lwp",
    "mmx",
    "movdir64b",
    "movdiri",
    "movrs",
    "mwaitx",
    "pconfig",
    "pku",
    "prefetchi",
    "prfchw",
    "ptwrite",
    "raoint",
    "rdpid",
    "rdpru",
    "sahf",
    "serialize",
    "sgx",
    "sha512",
    "shstk",
    "sm3",
    "sm4",
    "sse",
    "sse2",
    "tsxldtrk",
    "uintr",
    "usermsr",
    "waitpkg",
    "wbnoinvd",
    "widekl",
    "x87",
    "xsaves",
];

/// Whether an instruction set that the decoder knows is one that compilers use by themselves, on some processors, and that has no number.
const fn is_unknown(decoded: CpuidFeature) -> bool {
    matches!(
        decoded,
        CpuidFeature::AVX512_4FMAPS
            | CpuidFeature::AVX512_4VNNIW
            | CpuidFeature::AVX512ER
            | CpuidFeature::AVX512PF
            | CpuidFeature::CMPCCXADD
            | CpuidFeature::D3NOW
            | CpuidFeature::D3NOWEXT
            | CpuidFeature::FMA4
            | CpuidFeature::KNC
            | CpuidFeature::RAO_INT
            | CpuidFeature::XOP
    )
}

impl Features {
    /// None but those that all processors have.
    pub const NONE: Self = Self(0);

    /// An instruction set that has no number. No processor is known to have it.
    pub const UNKNOWN: Self = Self(1 << 127);

    /// The set with these names; a name that has no number counts for nothing.
    pub fn of_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        names.into_iter().filter_map(Self::by_name).fold(Self::NONE, Self::union)
    }

    /// The set of one instruction set, by LLVM's name. `None` if it has no number here.
    pub fn by_name(name: &str) -> Option<Self> {
        KNOWN.iter().find(|known| known.1 == name).map(|known| Self(1 << known.0))
    }

    /// Whether code may use an instruction set that has no number, by LLVM's name: all processors have it, or code has it only where its author
    /// asked for it.
    pub fn is_uncounted(name: &str) -> bool {
        UNCOUNTED.contains(&name) || name.starts_with("amx-")
    }

    /// The instruction sets of this processor that have a number.
    pub fn of_this_processor() -> Self {
        KNOWN.iter().filter(|(_, _, has)| has()).fold(Self::NONE, |set, known| set.union(Self(1 << known.0)))
    }

    /// The set as its bits, by number.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The set with these bits. Bits without a meaning here stay: no processor has them.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Those of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are in it.
    pub const fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Their names, as LLVM has them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const UNKNOWN: &str = "an instruction set that this engine does not know";
        let known = KNOWN.iter().fold(0, |bits: u128, known| bits | 1 << known.0);
        let named = KNOWN.iter().filter(move |known| self.0 >> known.0 & 1 != 0).map(|known| known.1);
        named.chain((self.0 & !known != 0).then_some(UNKNOWN))
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// The needs of code: what a processor must have to run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeNeeds {
    /// The instruction sets that it uses.
    pub features: Features,
    /// The width of its widest vectors, if they are wider than 128 bits; else 0.
    pub vector_bits: u32,
}

impl CodeNeeds {
    /// The needs of `code`, which was made for processors with `declared`. [`Features::UNKNOWN`] is among them if there is an instruction that
    /// is not known here.
    ///
    /// The instruction `tzcnt` is `rep bsf` to older processors, and compilers use it as that. So it counts only where `declared` has it.
    ///
    /// # Cost
    /// 7 ns for each byte. Data in code is decoded too, and may seem to be any instruction.
    pub fn of_code(code: &[u8], declared: Features) -> Self {
        let bmi = Features(1 << 8);
        let mut needs = Self::default();
        let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // Padding may end as an instruction begins.
                if decoder.last_error() != DecoderError::NoMoreBytes {
                    needs.features = needs.features.union(Features::UNKNOWN);
                }
                continue;
            }
            let mut used = Features::NONE;
            for &decoded in instruction.cpuid_features() {
                match number(decoded) {
                    Some(number) => used.0 |= 1 << number,
                    None if is_unknown(decoded) => used = used.union(Features::UNKNOWN),
                    None => {}
                }
            }
            if instruction.mnemonic() == Mnemonic::Tzcnt && !declared.contains(bmi) {
                used = used.without(bmi);
            }
            needs.features = needs.features.union(used);
            // Only these have wide vectors.
            let is_vector = used.contains(Features(1 << 6)) || used.0 & !0x7f != 0;
            if is_vector {
                needs.vector_bits = needs.vector_bits.max(vector_bits(&instruction));
            }
        }
        needs
    }

    /// The same without instructions that are not known here.
    #[must_use]
    pub const fn without_unknown(self) -> Self {
        Self { features: self.features.without(Features::UNKNOWN), ..self }
    }

    /// The part of it that code for processors with `declared` has by itself. The rest is there because the code asks for it.
    #[must_use]
    pub fn within(self, declared: Features) -> Self {
        let widest = match (declared.0 >> 15 & 1, declared.0 >> 6 & 1) {
            (0, 0) => 0,
            (0, _) => 256,
            _ => 512,
        };
        let features = Features(self.features.0 & declared.0);
        Self { features, vector_bits: self.vector_bits.min(widest) }
    }

    /// The needs of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            features: self.features.union(other.features),
            vector_bits: self.vector_bits.max(other.vector_bits),
        }
    }

    /// Whether code that needs this is likely to be faster than code for the same that needs `base`: it uses wider vectors, or an instruction set
    /// beyond. Other encodings of the same vectors, and instructions that take the place of two or three, do not count.
    pub fn is_faster_than(self, base: Self) -> bool {
        // avx, avx2, bmi, bmi2, lzcnt, movbe; avx512f, avx512bw, avx512dq, avx512vl as encodings.
        const SMALL: Features = Features(0b11 << 6 | 0b11 << 8 | 0b11 << 12 | 0b11 << 15 | 0b11 << 18);
        self.vector_bits > base.vector_bits || !self.features.without(base.features).without(SMALL).is_empty()
    }
}

fn vector_bits(instruction: &Instruction) -> u32 {
    let registers = (0..instruction.op_count())
        .filter(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand));
    registers
        .map(|register| {
            if register.is_zmm() {
                512
            } else if register.is_ymm() {
                256
            } else {
                0
            }
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(code: &[u8]) -> CodeNeeds {
        CodeNeeds::of_code(code, Features::NONE)
    }

    #[test]
    fn code_needs_the_instruction_sets_that_it_uses() {
        // add eax, ebx; addps xmm0, xmm1
        assert_eq!(needs(&[0x01, 0xd8, 0x0f, 0x58, 0xc1]), CodeNeeds::default());
        // pshufb xmm0, xmm1; popcnt eax, eax
        let v2 = needs(&[0x66, 0x0f, 0x38, 0x00, 0xc1, 0xf3, 0x0f, 0xb8, 0xc0]);
        assert_eq!(v2.features.names().collect::<Vec<_>>(), ["ssse3", "popcnt"]);
        // vaddps xmm0, xmm0, xmm1, and the same with ymm0
        let narrow = needs(&[0xc5, 0xf8, 0x58, 0xc1]);
        assert_eq!(narrow, CodeNeeds { features: Features::of_names(["avx"]), vector_bits: 0 });
        assert!(!narrow.is_faster_than(v2));
        let wide = needs(&[0xc5, 0xfc, 0x58, 0xc1]);
        assert_eq!(wide, CodeNeeds { features: Features::of_names(["avx"]), vector_bits: 256 });
        assert!(wide.is_faster_than(v2));
        // vfmadd213ss xmm0, xmm1, xmm2; vaddps zmm0, zmm0, zmm1
        let fused = needs(&[0xc4, 0xe2, 0x71, 0xa9, 0xc2]);
        assert!(fused.features.contains(Features::of_names(["fma"])) && fused.is_faster_than(wide));
        let widest = needs(&[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1]);
        assert_eq!(widest, CodeNeeds { features: Features::of_names(["avx512f"]), vector_bits: 512 });
    }

    #[test]
    fn a_count_of_zeros_is_a_scan_to_older_processors() {
        // rep bsf eax, edi
        let code = [0xf3, 0x0f, 0xbc, 0xc7];
        assert_eq!(needs(&code).features, Features::NONE);
        let bmi = Features::of_names(["bmi"]);
        assert_eq!(CodeNeeds::of_code(&code, bmi).features, bmi);
    }

    #[test]
    fn an_instruction_that_is_not_known_is_a_need_that_no_processor_meets() {
        // {nf} add rcx, rdi, rsi of APX; vprotd xmm0, xmm0, 7 of XOP; vfmaddss xmm0, xmm0, xmm1, xmm2 of FMA4
        let apx = [0x62, 0xf4, 0xf4, 0x1c, 0x01, 0xf7];
        for code in [&apx[..], &[0x8f, 0xe8, 0x78, 0xc2, 0xc0, 0x07], &[0xc4, 0xe3, 0xf9, 0x6a, 0xc2, 0x10]] {
            assert!(needs(code).features.contains(Features::UNKNOWN), "{code:x?}");
            assert!(needs(code).without_unknown().features.without(Features::of_names(["avx"])).is_empty());
        }
        // The first half of an instruction; rdtscp, endbr64, prefetchw [rax], clflushopt [rax]
        for code in [
            &[0xc5][..],
            &[0x0f, 0x01, 0xf9],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x0f, 0x0d, 0x08],
            &[0x66, 0x0f, 0xae, 0x38],
        ] {
            assert_eq!(needs(code), CodeNeeds::default(), "{code:x?}");
        }
    }

    #[test]
    fn numbers_are_unique_and_unknown_ones_are_lacking() {
        let mut numbers: Vec<_> = KNOWN.iter().map(|known| known.0).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), KNOWN.len());
        let unknown = Features::UNKNOWN;
        assert!(numbers.iter().all(|&number| number < 127));
        assert!(!Features::of_this_processor().contains(unknown));
        assert_eq!(unknown.names().count(), 1);
    }
}
