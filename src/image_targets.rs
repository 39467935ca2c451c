//! [`ImageTargets`]: the processors that an image is compiled for, as a text says them.

use uruk_pipeline::arch::{Features, ProcessorLevel, ProcessorTarget};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{JitTargetMachineBuilder, ModuleVersion, TargetOptions, features_of_processor};

use crate::error::JitError;

/// The targets of an image. The base comes first, the others by their names.
#[derive(Clone, Debug)]
pub(crate) struct ImageTargets(Vec<ImageTarget>);

#[derive(Clone, Debug)]
struct ImageTarget {
    target: ProcessorTarget,
    #[cfg(feature = "llvm")]
    is_native: bool,
    #[cfg(feature = "llvm")]
    cpu: String,
    /// As they were written, sorted: those that are added, then those that are taken away.
    #[cfg(feature = "llvm")]
    changes: Vec<String>,
}

impl ImageTargets {
    /// Targets between semicolons, each a processor and, behind commas, `+` or `-` and an instruction set, `clone_all` or `clone_hot`.
    pub(crate) fn parse(text: &str) -> Result<Self, JitError> {
        let refused = |message: String| JitError::Targets { targets: text.into(), message };
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let mut targets: Vec<ImageTarget> = Vec::new();
        for part in parts {
            let target = ImageTarget::parse(part, &refused)?;
            match targets.iter_mut().find(|known| known.target.name == target.target.name) {
                Some(known) => known.target.is_whole |= target.target.is_whole,
                None => targets.push(target),
            }
        }
        let is_base = |target: &&ImageTarget| {
            targets.iter().all(|other| other.target.features.contains(target.target.features))
        };
        let Some(base) = targets.iter().filter(is_base).map(|target| target.target.name.clone()).min() else {
            return Err(refused(match targets.len() {
                0 => "names no processor".to_owned(),
                _ => "no target is a base, whose instruction sets all others have; add one, as x86-64"
                    .to_owned(),
            }));
        };
        targets.sort_unstable_by(|left, right| {
            let rank = |target: &ImageTarget| (target.target.name != base, target.target.name.clone());
            rank(left).cmp(&rank(right))
        });
        Ok(Self(targets))
    }

    pub(crate) fn into_list(self) -> Vec<ProcessorTarget> {
        self.0.into_iter().map(|target| target.target).collect()
    }

    /// The base, with this machine's system.
    #[cfg(feature = "llvm")]
    pub(crate) fn base(&self) -> Result<JitTargetMachineBuilder, JitError> {
        let base = &self.0[0];
        // LLVM knows what a processor has, but for this one.
        base.machine(if base.is_native { base.features() } else { base.changes.join(",") })
    }

    /// The other targets.
    #[cfg(feature = "llvm")]
    pub(crate) fn versions(&self) -> Result<Vec<ModuleVersion>, JitError> {
        let base = &self.0[0].target;
        let base = (base.name.clone(), vector_bits(base.features));
        let version = |target: &ImageTarget| {
            Ok(ModuleVersion {
                name: target.target.name.clone(),
                target: target.machine(target.features())?,
                vector_bits: vector_bits(target.target.features),
                base: base.clone(),
            })
        };
        self.0[1..].iter().map(version).collect()
    }
}

impl ImageTarget {
    fn parse(text: &str, refused: &dyn Fn(String) -> JitError) -> Result<Self, JitError> {
        let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let named = words.next().unwrap_or_default();
        let (mut changes, mut is_whole) = (Vec::new(), false);
        for word in words {
            match word {
                "clone_all" => is_whole = true,
                "clone_hot" => {}
                _ if word.starts_with(['+', '-']) => {
                    if Features::by_name(&word[1..]).is_none() {
                        return Err(refused(format!(
                            "`{}` is no instruction set that images know",
                            &word[1..]
                        )));
                    }
                    changes.push(word.to_owned());
                }
                _ if word.starts_with("base(") => {
                    let message = "the base is the target whose instruction sets all others have";
                    return Err(refused(format!("`{word}`: {message}")));
                }
                _ => {
                    let words = "+ or - and an instruction set, clone_all, clone_hot";
                    return Err(refused(format!("`{word}`: behind a processor there may be {words}")));
                }
            }
        }
        changes.sort_unstable();
        changes.dedup();
        let name = std::iter::once(named).chain(changes.iter().map(String::as_str)).collect::<Vec<_>>();
        let name = name.join(",").into();
        let (cpu, (features, unknown)) = processor(named, &changes)?.ok_or_else(|| {
            let levels = ProcessorLevel::ALL.map(ProcessorLevel::name).join(", ");
            refused(format!("`{named}` is no processor that is known here; there are {levels}, and native"))
        })?;
        if !unknown.is_empty() {
            return Err(refused(format!("`{named}` has {}, which images do not know", unknown.join(", "))));
        }
        let target = ProcessorTarget { name, features, is_whole };
        #[cfg(not(feature = "llvm"))]
        let (found, _) = (Self { target }, cpu);
        #[cfg(feature = "llvm")]
        let found = Self { target, cpu, changes, is_native: named == "native" };
        Ok(found)
    }

    /// All its instruction sets: attributes of functions take the place of those that a processor implies.
    #[cfg(feature = "llvm")]
    fn features(&self) -> String {
        let has = self.target.features.names().map(|name| format!("+{name}"));
        let lacks = self.changes.iter().filter(|change| change.starts_with('-')).cloned();
        has.chain(lacks).collect::<Vec<_>>().join(",")
    }

    #[cfg(feature = "llvm")]
    fn machine(&self, features: String) -> Result<JitTargetMachineBuilder, JitError> {
        let host = JitTargetMachineBuilder::host()?;
        let cpu = self.cpu.clone();
        Ok(JitTargetMachineBuilder::new(TargetOptions { cpu, features, ..host.options().clone() })?)
    }
}

/// A processor's instruction sets, and the names of those that images do not know.
type HeldFeatures = (Features, Vec<String>);

/// LLVM's name of a processor, and its instruction sets. Levels are known without LLVM.
fn processor(named: &str, changes: &[String]) -> Result<Option<(String, HeldFeatures)>, JitError> {
    if let Some(level) = ProcessorLevel::by_name(named)
        && changes.is_empty()
    {
        return Ok(Some((named.to_owned(), (level.features(), Vec::new()))));
    }
    if named == "native" {
        // The name of a processor says more than the machine has, where a hypervisor takes something away.
        let level = ProcessorLevel::of_this_processor();
        let mut features = Features::of_this_processor();
        for change in changes {
            let (added, name) = (change.starts_with('+'), &change[1..]);
            let one = Features::of_names([name]);
            features = if added { features.union(one) } else { features.without(one) };
        }
        return Ok(Some((level.name().to_owned(), (features, Vec::new()))));
    }
    #[cfg(feature = "llvm")]
    let found = features_of_processor(named, &changes.join(","))?.map(|found| (named.to_owned(), found));
    #[cfg(not(feature = "llvm"))]
    let found = None;
    Ok(found)
}

/// The widest vectors that fit into a register.
#[cfg(feature = "llvm")]
fn vector_bits(features: Features) -> u32 {
    let has = |name| features.contains(Features::of_names([name]));
    if has("avx512f") {
        512
    } else if has("avx") {
        256
    } else {
        128
    }
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<Box<str>> {
        let targets = ImageTargets::parse(text).unwrap_or_else(|error| panic!("{error}"));
        targets.into_list().into_iter().map(|target| target.name).collect()
    }

    fn refusal(text: &str) -> String {
        ImageTargets::parse(text).expect_err("it is refused").to_string()
    }

    /// The order of targets decided who was the base: julia#50148.
    #[test]
    fn the_order_of_targets_means_nothing() {
        let expected = ["x86-64-v2", "haswell,+aes", "x86-64-v3", "x86-64-v4"].map(Box::from);
        let parts = ["x86-64-v4,clone_all", "x86-64-v2", "haswell,+aes", "x86-64-v3, clone_hot"];
        for first in 0..parts.len() {
            let turned = [&parts[first..], &parts[..first]].concat();
            assert_eq!(names(&turned.join(";")), expected);
            let reversed: Vec<_> = turned.into_iter().rev().collect();
            assert_eq!(names(&reversed.join(" ; ")), expected);
        }
        assert_eq!(names("x86-64-v3;x86-64-v3,clone_all;"), ["x86-64-v3".into()]);
    }

    #[test]
    fn an_instruction_set_brings_and_takes_those_that_it_implies() {
        let of = |text: &str| ImageTargets::parse(text).expect("it is known").into_list()[0].features;
        let with = of("x86-64,+avx2");
        assert!(with.contains(Features::of_names(["avx2", "avx", "sse4.2", "ssse3"])), "{with:?}");
        let without = of("x86-64-v3,-avx");
        let gone = ["avx", "avx2", "fma", "f16c"].map(|name| without.contains(Features::of_names([name])));
        assert_eq!((gone, without.contains(Features::of_names(["bmi2"]))), ([false; 4], true), "{without:?}");
    }

    #[test]
    fn a_text_that_names_no_targets_is_refused_in_a_sentence() {
        assert!(refusal("").contains("names no processor"));
        assert!(refusal("pentium9").contains("`pentium9` is no processor that is known here"));
        assert!(refusal("x86-64;bdver1").contains("`bdver1` has fma4, xop, which images do not know"));
        assert!(refusal("diamondrapids").contains("which images do not know"));
        for known in [
            "znver5",
            "sapphirerapids",
            "graniterapids",
            "sierraforest",
            "arrowlake-s",
            "pantherlake",
            "atom",
            "btver2",
        ] {
            assert_eq!(names(known), [known.into()]);
        }
        assert!(refusal("x86-64,+warp").contains("`warp` is no instruction set"));
        assert!(refusal("x86-64;x86-64-v2,base(0)").contains("the base is the target"));
        assert!(refusal("x86-64,opt_size").contains("`opt_size`: behind a processor"));
        assert!(refusal("x86-64-v2,+avx;x86-64-v2,+aes").contains("no target is a base"));
    }
}
