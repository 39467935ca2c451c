//! [`OptimizationPipeline`]: the passes that run over a module, and the host's hooks between them.
//!
//! A *level* is LLVM's own pipeline for it, the one compilers run. It has seven [stages](Stage), which can be replaced and added to one by
//! one, and LLVM's own [extension points](ExtensionPoint). Any other pipeline is a text, as LLVM's `opt` takes it.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::CompileError;
use super::hooks::{ExtensionPoint, PassHook};
use super::stages::{Stage, StagePiece, Stages, says_its_level};
use super::target::JitTargetMachineBuilder;

/// How much a pipeline optimizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OptimizationLevel {
    /// Only what correctness asks for: coroutines, `alwaysinline`.
    O0,
    /// Quickly, without growing code.
    O1,
    /// The level of most programs.
    #[default]
    O2,
    /// More inlining and vectorization.
    O3,
    /// As O2, where that grows no code.
    Os,
    /// The smallest code, also where that is slower.
    Oz,
}

impl OptimizationLevel {
    /// All levels. The shim has the same order.
    pub const ALL: [Self; 6] = [Self::O0, Self::O1, Self::O2, Self::O3, Self::Os, Self::Oz];

    /// Whether the pipeline has an inliner that walks the call graph and runs [some stages](Stage::is_in_walk) as it goes.
    pub const fn has_walk(self) -> bool {
        !matches!(self, Self::O0)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::O0 => "O0",
            Self::O1 => "O1",
            Self::O2 => "O2",
            Self::O3 => "O3",
            Self::Os => "Os",
            Self::Oz => "Oz",
        }
    }
}

impl fmt::Display for OptimizationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The passes to run over a module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OptimizationPipeline {
    body: StageWork,
    /// Passes before everything else.
    at_start: Vec<String>,
    /// Passes after everything else.
    at_end: Vec<String>,
    changes: Vec<Change>,
    /// The last stage that runs.
    last: Stage,
    inliner_threshold: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum StageWork {
    None,
    Level(OptimizationLevel),
    Passes(String),
}

/// A difference from LLVM's own pipeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Change {
    Passes {
        stage: Stage,
        side: Side,
        passes: String,
    },
    #[serde(skip)] // code of this process
    Hook {
        stage: Stage,
        side: Side,
        hook: PassHook,
    },
    #[serde(skip)]
    Point {
        point: ExtensionPoint,
        hook: PassHook,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Side {
    Before,
    Instead,
    After,
}

impl StageWork {
    fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Level(level) => format!("default<{level}>"),
            Self::Passes(passes) => passes.clone(),
        }
    }
}

impl Change {
    fn hook(&self) -> Option<&PassHook> {
        match self {
            Self::Passes { .. } => None,
            Self::Hook { hook, .. } | Self::Point { hook, .. } => Some(hook),
        }
    }
}

/// The passes for LLVM to run, and the hooks among them by number.
#[derive(Clone, Debug)]
pub(super) struct Passes {
    pub(super) text: Arc<str>,
    pub(super) hooks: Arc<[PassHook]>,
    pub(super) inliner_threshold: Option<i32>,
}

impl Passes {
    pub(super) fn none() -> Self {
        Self { text: Arc::default(), hooks: Arc::default(), inliner_threshold: None }
    }
}

/// The number of the first extension point in a text. Hooks have numbers below it.
pub(super) const FIRST_POINT: u32 = 1 << 20;

impl OptimizationPipeline {
    /// No passes at all: code is generated from the IR as it is.
    pub fn none() -> Self {
        Self::of(StageWork::None)
    }

    /// LLVM's own pipeline for `level`.
    pub fn level(level: OptimizationLevel) -> Self {
        Self::of(StageWork::Level(level))
    }

    /// Any pipeline, as `opt -passes=` takes it. Whether LLVM understands it is found out when it runs; see
    /// [`IrCompiler::check_pipeline`](super::IrCompiler::check_pipeline). It has no stages.
    pub fn passes(passes: impl Into<String>) -> Self {
        Self::of(StageWork::Passes(passes.into()))
    }

    /// Whether functions of a module go that nothing in it refers to, and that cannot be referred to from outside.
    pub(super) fn drops_unused(&self) -> bool {
        matches!(self.body, StageWork::Level(level) if level != OptimizationLevel::O0)
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

    /// Runs `passes` before `stage` of a level.
    #[must_use]
    pub fn before(self, stage: Stage, passes: impl Into<String>) -> Self {
        self.changed(Change::Passes { stage, side: Side::Before, passes: passes.into() })
    }

    /// Runs `passes` after `stage` of a level.
    #[must_use]
    pub fn after(self, stage: Stage, passes: impl Into<String>) -> Self {
        self.changed(Change::Passes { stage, side: Side::After, passes: passes.into() })
    }

    /// Runs `passes` in place of those that `stage` of a level has; an empty text leaves them out. The last replacement counts.
    #[must_use]
    pub fn replace(self, stage: Stage, passes: impl Into<String>) -> Self {
        self.changed(Change::Passes { stage, side: Side::Instead, passes: passes.into() })
    }

    /// Runs `hook` before `stage` of a level: on each function by itself if the stage [is in the walk](Stage::is_in_walk), otherwise once,
    /// on the module.
    #[must_use]
    pub fn hook_before(self, stage: Stage, hook: PassHook) -> Self {
        self.changed(Change::Hook { stage, side: Side::Before, hook })
    }

    /// Runs `hook` after `stage` of a level, as [`Self::hook_before`] before it.
    #[must_use]
    pub fn hook_after(self, stage: Stage, hook: PassHook) -> Self {
        self.changed(Change::Hook { stage, side: Side::After, hook })
    }

    /// Runs `hook` at one of LLVM's own extension points of a level.
    #[must_use]
    #[doc(alias = "registerPipelineStartEPCallback")]
    pub fn hook_at(self, point: ExtensionPoint, hook: PassHook) -> Self {
        self.changed(Change::Point { point, hook })
    }

    /// Has the inliner of a level inline calls that cost up to `threshold` in LLVM's units, about five for an instruction. LLVM's own
    /// thresholds are 225 at O1 and O2, 250 at O3, 50 at Os and 5 at Oz. It counts also where a text says `default<O2>`, but not for
    /// `inline` in a text, which has LLVM's own, nor for functions that have to be inlined. -1 is LLVM's own too.
    #[doc(alias = "LLVMPassBuilderOptionsSetInlinerThreshold")]
    #[must_use]
    pub fn inliner_threshold(mut self, threshold: i32) -> Self {
        self.inliner_threshold = (threshold != -1).then_some(threshold);
        self
    }

    /// Leaves out the stages of a level behind `stage`.
    #[must_use]
    pub fn up_to(mut self, stage: Stage) -> Self {
        self.last = stage;
        self
    }

    /// The level, where the pipeline has one.
    pub fn optimization_level(&self) -> Option<OptimizationLevel> {
        match self.body {
            StageWork::Level(level) => Some(level),
            StageWork::None | StageWork::Passes(_) => None,
        }
    }

    /// Which pipeline it is, for people and for cache keys; empty when there is nothing to run. LLVM reads it as it stands if nothing was
    /// changed. A hook is there by its id.
    pub fn text(&self) -> String {
        let Self { body, at_start: _, at_end: _, changes, last, inliner_threshold } = self; // Two are said by `surrounded`.
        let mut body = body.text();
        for change in changes {
            _ = match change {
                Change::Passes { stage, side, passes } => write!(body, " ({side:?} {stage}: {passes:?})"),
                Change::Hook { stage, side, hook } => {
                    write!(body, " ({side:?} {stage}: hook {:?})", hook.id())
                }
                Change::Point { point, hook } => write!(body, " ({point:?}: hook {:?})", hook.id()),
            };
        }
        if *last != Stage::Cleanup {
            _ = write!(body, " (up to {last})");
        }
        if let Some(threshold) = inliner_threshold {
            _ = write!(body, " (inliner threshold {threshold})");
        }
        self.surrounded(body)
    }

    /// The hooks' ids, in the order in which they were added.
    pub(super) fn hook_ids(&self) -> Vec<&str> {
        self.changes.iter().filter_map(Change::hook).map(PassHook::id).collect()
    }

    fn surrounded(&self, body: String) -> String {
        let (start, end) = (self.at_start.iter(), self.at_end.iter());
        let parts = start.cloned().chain([body]).chain(end.cloned());
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
    }

    /// The passes for LLVM to run. With `measured`, the text also says where each stage begins.
    pub(super) fn expanded(
        &self,
        target: &JitTargetMachineBuilder,
        measured: bool,
    ) -> Result<Passes, CompileError> {
        let is_changed = self.is_changed();
        match self.body {
            StageWork::Level(level) if is_changed || measured => {
                let hooks: Arc<[PassHook]> = self.changes.iter().filter_map(Change::hook).cloned().collect();
                let stages = self.cut(level, target)?;
                let text = stages.text(self.last, |stage| self.pieces(&stages, stage, measured));
                Ok(Passes { hooks, ..self.understood(self.surrounded(text)) })
            }
            _ if is_changed => Err(self.refused("a pipeline that is no level has no stages".to_owned())),
            _ => Ok(self.understood(self.surrounded(self.body.text()))),
        }
    }

    /// A text that LLVM reads as it stands.
    fn understood(&self, text: String) -> Passes {
        Passes { text: text.into(), hooks: Arc::default(), inliner_threshold: self.inliner_threshold }
    }

    fn is_changed(&self) -> bool {
        !self.changes.is_empty() || self.last != Stage::Cleanup
    }

    fn refused(&self, message: String) -> CompileError {
        CompileError::Optimize { module: "the pipeline".into(), passes: self.text(), message }
    }

    /// The stages of a level as LLVM has them, with the hooks at LLVM's extension points.
    pub(super) fn cut(
        &self,
        level: OptimizationLevel,
        target: &JitTargetMachineBuilder,
    ) -> Result<Stages, CompileError> {
        let has_points = self.changes.iter().any(|change| matches!(change, Change::Point { .. }));
        let first = if has_points { FIRST_POINT } else { 0 };
        let (text, _) = target.with_machine(|machine| machine.pipeline_text(level, first))?;
        let text = if has_points { self.with_points(&text) } else { text };
        let refused = || self.refused(format!("this LLVM's pipeline for {level} cannot be cut into stages"));
        Stages::cut(&text, level).ok_or_else(refused)
    }

    /// The text with the hooks of each point in its place, and without points that have none.
    fn with_points(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (number, point) in (FIRST_POINT..).zip(ExtensionPoint::ALL) {
            let hooks = self.numbered().filter_map(|(number, change)| match change {
                Change::Point { point: at, .. } if *at == point => Some(host(number)),
                _ => None,
            });
            let (hooks, place) = (hooks.collect::<Vec<_>>().join(","), host(number));
            text = if hooks.is_empty() {
                text.replace(&format!(",{place}"), "").replace(&format!("{place},"), "")
            } else {
                text.replace(&place, &hooks)
            };
        }
        text
    }

    /// The changes that are hooks, with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (u32, &Change)> {
        (0..).zip(self.changes.iter().filter(|change| change.hook().is_some()))
    }

    /// The passes and hooks in the place of `stage`.
    fn pieces(&self, stages: &Stages, stage: Stage, measured: bool) -> Vec<StagePiece> {
        let mut hooks = 0;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut own = stages.passes(stage);
        for change in &self.changes {
            let number = hooks;
            hooks += u32::from(change.hook().is_some());
            let (side, piece) = match change {
                Change::Passes { stage: of, side: Side::Instead, passes } if *of == stage => {
                    own = passes;
                    continue;
                }
                Change::Passes { stage: of, side, passes } if *of == stage => {
                    (side, StagePiece::Passes(passes.clone()))
                }
                Change::Hook { stage: of, side, .. } if *of == stage => {
                    (side, StagePiece::Host(host(number)))
                }
                _ => continue,
            };
            if *side == Side::Before { before.push(piece) } else { after.push(piece) }
        }
        let mark = measured.then(|| StagePiece::Passes(format!("uruk-stage<{}>", stage as u32)));
        let own = StagePiece::Passes(own.to_owned());
        mark.into_iter().chain(before).chain([own]).chain(after).collect()
    }

    /// Lists of passes that do not come from LLVM, each as a text that LLVM can read, with the place where it runs.
    pub(super) fn foreign(&self) -> Vec<(String, String)> {
        let around = self.at_start.iter().chain(&self.at_end);
        let around = around.map(|passes| ("before or after everything".to_owned(), passes.clone()));
        let stages = self.changes.iter().filter_map(|change| match change {
            Change::Passes { stage, passes, .. } if stage.is_of_functions() => {
                Some((format!("stage {stage}"), format!("function({passes})")))
            }
            Change::Passes { stage, passes, .. } => Some((format!("stage {stage}"), passes.clone())),
            Change::Hook { .. } | Change::Point { .. } => None,
        });
        around.chain(stages).filter(|(_, passes)| !matches!(&**passes, "" | "function()")).collect()
    }

    /// Two halves of the passes: the first simplifies and inlines functions, and the second changes each function by itself. If LLVM's own
    /// pipeline was changed, the first half is everything, because a changed pipeline cannot be cut.
    pub(super) fn halves(&self, target: &JitTargetMachineBuilder) -> Result<(Passes, Passes), CompileError> {
        let whole = || Ok((self.expanded(target, false)?, Passes::none()));
        let StageWork::Level(level) = self.body else { return whole() };
        if level == OptimizationLevel::O0 || !self.at_end.is_empty() || self.is_changed() {
            return whole();
        }
        let (mut text, cut) = target.with_machine(|machine| machine.pipeline_text(level, 0))?;
        if cut == 0 || !says_its_level(&text) {
            return whole();
        }
        let second = text.split_off(cut);
        text.truncate(cut - 1); // The comma between them.
        Ok((self.understood(self.surrounded(text)), self.understood(second)))
    }

    /// Whether every pass was chosen here, so that LLVM is known to understand them.
    pub(super) fn is_known_good(&self) -> bool {
        let is_ours = !matches!(self.body, StageWork::Passes(_));
        is_ours && !self.is_changed() && self.at_start.is_empty() && self.at_end.is_empty()
    }

    fn of(body: StageWork) -> Self {
        let (at_start, at_end, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self { body, at_start, at_end, changes, last: Stage::Cleanup, inliner_threshold: None }
    }

    fn changed(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

/// The host's pass of that number, as the shim reads it.
fn host(number: u32) -> String {
    format!("uruk-host<{number}>")
}

impl Default for OptimizationPipeline {
    fn default() -> Self {
        Self::level(OptimizationLevel::default())
    }
}
