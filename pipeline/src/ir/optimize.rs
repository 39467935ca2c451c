//! [`OptimizationPipeline`]: which passes run over a module, written as LLVM's new pass manager reads them.
//!
//! Two ways to say it. A *level* is LLVM's own pipeline for it, the one compilers run; LLVM's C interface
//! allows additions only before and after it. A *staged* pipeline is made of seven named stages in order,
//! each with an extension point before and after it.

use std::borrow::Cow;
use std::fmt;

use super::error::CompileError;
use super::target::JitTargetMachineBuilder;

/// How much a pipeline optimizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptimizationLevel {
    /// Only what correctness asks for: coroutines, `alwaysinline`.
    O0,
    /// Quickly, without growing code.
    O1,
    /// What most programs are compiled with.
    #[default]
    O2,
    /// More inlining and vectorization.
    O3,
}

impl OptimizationLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::O0 => "O0",
            Self::O1 => "O1",
            Self::O2 => "O2",
            Self::O3 => "O3",
        }
    }
}

impl fmt::Display for OptimizationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stage of a staged pipeline, in running order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Gets rid of what front ends leave behind, so that the rest sees less.
    EarlySimplification,
    /// Inlining and what it lays open.
    EarlyOptimization,
    /// Rotation, invariant code, induction variables, unrolling.
    Loop,
    /// Redundancies across blocks, dead stores, jump threading.
    Scalar,
    /// Loop and straight-line vectorization.
    Vectorization,
    /// Lowers what only optimization understood.
    IntrinsicLowering,
    /// Drops what nobody uses any more.
    Cleanup,
}

impl Stage {
    /// All stages, in running order.
    pub const ALL: [Self; 7] = [
        Self::EarlySimplification,
        Self::EarlyOptimization,
        Self::Loop,
        Self::Scalar,
        Self::Vectorization,
        Self::IntrinsicLowering,
        Self::Cleanup,
    ];

    /// What the stage runs at `level`; empty when that is nothing.
    const fn passes(self, level: OptimizationLevel) -> &'static str {
        use OptimizationLevel::{O0, O1, O2, O3};
        match (self, level) {
            (Self::EarlySimplification, O0) => {
                "always-inline,coro-cond(coro-early,cgscc(coro-split),coro-cleanup)"
            }
            (Self::EarlySimplification, _) => {
                "inferattrs,coro-early,function(lower-expect,simplifycfg,sroa<modify-cfg>,early-cse),ipsccp,\
                 called-value-propagation,globalopt,function(mem2reg,instcombine,simplifycfg)"
            }
            (Self::EarlyOptimization, O1) => {
                "always-inline,cgscc(devirt<1>(inline,function-attrs,coro-split,\
                 function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,instcombine)))"
            }
            (Self::EarlyOptimization, O2 | O3) => {
                "always-inline,cgscc(devirt<4>(inline,function-attrs,argpromotion,coro-split,\
                 function(sroa<modify-cfg>,early-cse<memssa>,jump-threading,correlated-propagation,simplifycfg,\
                 instcombine,reassociate)))"
            }
            (Self::Loop, O1 | O2 | O3) => {
                "function(loop-simplify,lcssa,loop-mssa(loop-rotate,licm,simple-loop-unswitch),instcombine,\
                 loop(loop-idiom,indvars,loop-deletion,loop-unroll-full))"
            }
            (Self::Scalar, O1) => {
                "function(sroa<modify-cfg>,memcpyopt,sccp,bdce,instcombine,adce,simplifycfg)"
            }
            (Self::Scalar, O2 | O3) => {
                "function(sroa<modify-cfg>,mldst-motion,gvn,memcpyopt,sccp,bdce,instcombine,jump-threading,\
                 correlated-propagation,adce,dse,loop-mssa(licm),simplifycfg,instcombine)"
            }
            (Self::Vectorization, O2 | O3) => {
                "function(float2int,loop-simplify,lcssa,loop(loop-rotate),loop-distribute,inject-tli-mappings,\
                 loop-vectorize,loop-load-elim,instcombine,simplifycfg,slp-vectorizer,vector-combine,instcombine,\
                 loop-unroll,transform-warning,sroa<preserve-cfg>,instcombine)"
            }
            (Self::IntrinsicLowering, O0) => "",
            (Self::IntrinsicLowering, _) => {
                "coro-cleanup,function(lower-constant-intrinsics,alignment-from-assumptions,loop-sink,instsimplify,\
                 div-rem-pairs,tailcallelim,simplifycfg)"
            }
            (Self::Cleanup, O0) => "",
            (Self::Cleanup, _) => "elim-avail-extern,globaldce,constmerge",
            (Self::Loop | Self::Scalar | Self::Vectorization, O0)
            | (Self::EarlyOptimization, O0)
            | (Self::Vectorization, O1) => "",
        }
    }
}

/// The passes to run over a module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OptimizationPipeline {
    body: Body,
    /// What runs before everything else.
    at_start: Vec<String>,
    /// What runs after everything else.
    at_end: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body {
    None,
    Level(OptimizationLevel),
    Staged { level: OptimizationLevel, around: Vec<Extension> },
    Passes(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Extension {
    stage: Stage,
    after: bool,
    passes: String,
}

impl OptimizationPipeline {
    /// No passes at all: code is generated from the IR as it is.
    pub fn none() -> Self {
        Self::of(Body::None)
    }

    /// LLVM's own pipeline for `level`.
    pub fn level(level: OptimizationLevel) -> Self {
        Self::of(Body::Level(level))
    }

    /// The seven stages at `level`, open for extension between each two.
    pub fn staged(level: OptimizationLevel) -> Self {
        Self::of(Body::Staged { level, around: Vec::new() })
    }

    /// Any pipeline, as `opt -passes=` takes it. Whether LLVM understands it is found out when it runs; see
    /// [`IrCompiler::check_pipeline`](super::IrCompiler::check_pipeline).
    pub fn passes(passes: impl Into<String>) -> Self {
        Self::of(Body::Passes(passes.into()))
    }

    /// Runs `passes` before everything else.
    #[must_use]
    pub fn at_start(mut self, passes: impl Into<String>) -> Self {
        self.at_start.push(passes.into());
        self
    }

    /// Runs `passes` after everything else.
    #[must_use]
    pub fn at_end(mut self, passes: impl Into<String>) -> Self {
        self.at_end.push(passes.into());
        self
    }

    /// Runs `passes` before `stage` of a staged pipeline; before everything else in others.
    #[must_use]
    pub fn before(self, stage: Stage, passes: impl Into<String>) -> Self {
        self.around(stage, false, passes.into())
    }

    /// Runs `passes` after `stage` of a staged pipeline; after everything else in others.
    #[must_use]
    pub fn after(self, stage: Stage, passes: impl Into<String>) -> Self {
        self.around(stage, true, passes.into())
    }

    /// The level, where the pipeline has one.
    pub fn optimization_level(&self) -> Option<OptimizationLevel> {
        match self.body {
            Body::Level(level) | Body::Staged { level, .. } => Some(level),
            Body::None | Body::Passes(_) => None,
        }
    }

    /// The pipeline as LLVM reads it; empty when there is nothing to run. Part of a cache key.
    pub fn text(&self) -> String {
        let body = match &self.body {
            Body::None => Vec::new(),
            Body::Level(level) => vec![Cow::from(format!("default<{level}>"))],
            Body::Staged { level, around } => staged_text(*level, around),
            Body::Passes(passes) => vec![Cow::from(passes.as_str())],
        };
        let start = self.at_start.iter().map(|passes| Cow::from(passes.as_str()));
        let end = self.at_end.iter().map(|passes| Cow::from(passes.as_str()));
        let parts: Vec<_> = start.chain(body).chain(end).filter(|part| !part.is_empty()).collect();
        parts.join(",")
    }

    /// The text in two halves: functions are simplified and inlined in the first, and the second changes each by itself. The first
    /// half is everything where LLVM's own pipeline was changed, or nothing would be left to be cut.
    pub(super) fn halves(&self, target: &JitTargetMachineBuilder) -> Result<(String, String), CompileError> {
        let whole = || Ok((self.text(), String::new()));
        let Body::Level(level) = self.body else { return whole() };
        if level == OptimizationLevel::O0 || !self.at_end.is_empty() {
            return whole();
        }
        let (mut text, cut) = target.with_machine(|machine| machine.pipeline_text(level as u32))?;
        if cut == 0 {
            return whole();
        }
        let second = text.split_off(cut);
        text.truncate(cut - 1); // The comma between them.
        let start = self.at_start.iter().map(String::as_str).filter(|passes| !passes.is_empty());
        Ok((start.chain([text.as_str()]).collect::<Vec<_>>().join(","), second))
    }

    /// Whether every pass was chosen here, so that LLVM is known to understand them.
    pub(super) fn is_known_good(&self) -> bool {
        let body = match &self.body {
            Body::None | Body::Level(_) => true,
            Body::Staged { around, .. } => around.is_empty(),
            Body::Passes(_) => false,
        };
        body && self.at_start.is_empty() && self.at_end.is_empty()
    }

    fn of(body: Body) -> Self {
        Self { body, at_start: Vec::new(), at_end: Vec::new() }
    }

    fn around(mut self, stage: Stage, after: bool, passes: String) -> Self {
        match &mut self.body {
            Body::Staged { around, .. } => around.push(Extension { stage, after, passes }),
            _ if after => self.at_end.push(passes),
            _ => self.at_start.push(passes),
        }
        self
    }
}

impl Default for OptimizationPipeline {
    fn default() -> Self {
        Self::level(OptimizationLevel::default())
    }
}

fn staged_text(level: OptimizationLevel, around: &[Extension]) -> Vec<Cow<'_, str>> {
    let at = |stage, after| {
        around
            .iter()
            .filter(move |extension| extension.stage == stage && extension.after == after)
            .map(|extension| Cow::from(extension.passes.as_str()))
    };
    let mut parts = Vec::new();
    for stage in Stage::ALL {
        parts.extend(at(stage, false));
        // In a text, the bare name has LLVM give up on code that a second run would improve further.
        parts.push(Cow::from(stage.passes(level).replace("instcombine", "instcombine<no-verify-fixpoint>")));
        parts.extend(at(stage, true));
    }
    parts
}
