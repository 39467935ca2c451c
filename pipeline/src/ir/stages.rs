//! [`Stage`]: LLVM's own pipeline, as LLVM prints it, cut into seven stages.
//!
//! LLVM's pipelines are not seven lists one after another. Behind the first stage the inliner walks the call graph, callees first, and runs
//! three stages over each function before it goes on to callers. So a text is cut where its frames allow:
//!
//! ```text
//! early simplification                                  the module
//! walk( early optimization, loop, scalar )              one function after another, each time something was inlined
//! what follows the walk                                 no stage: dead arguments and globals
//! function( vectorization, intrinsic lowering )         one function after another
//! cleanup                                               the module
//! ```
//!
//! Put together again, the text does what LLVM's pipeline does: objects are the same, byte for byte.
//!
//! Source: Julia's stages, `pipeline.cpp` there. The passes are LLVM's.

use serde::{Deserialize, Serialize};
use std::fmt;

use super::optimize::OptimizationLevel;

/// A stage of a pipeline, in running order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Removes leftovers of front ends, so that the rest sees less.
    EarlySimplification,
    /// Simplifications that inlining makes possible. The inliner itself is not replaced.
    EarlyOptimization,
    /// Rotation, invariant code, induction variables, unrolling.
    Loop,
    /// Redundancies across blocks, dead stores, jump threading.
    Scalar,
    /// Loop and straight-line vectorization.
    Vectorization,
    /// Lowers intrinsics that only optimization understood.
    IntrinsicLowering,
    /// Drops unused definitions.
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

    /// The stage's name, in small letters: `early-simplification`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EarlySimplification => "early-simplification",
            Self::EarlyOptimization => "early-optimization",
            Self::Loop => "loop",
            Self::Scalar => "scalar",
            Self::Vectorization => "vectorization",
            Self::IntrinsicLowering => "intrinsic-lowering",
            Self::Cleanup => "cleanup",
        }
    }

    /// The stage of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Whether the stage's passes run over functions one by one. They are function passes then: `instcombine`, and not
    /// `function(instcombine)`.
    pub const fn is_of_functions(self) -> bool {
        !matches!(self, Self::EarlySimplification | Self::Cleanup)
    }

    /// Whether the stage runs while the inliner walks the call graph. A pass that is added to it sees one function. It may neither change
    /// others nor add calls to functions that this one did not refer to.
    pub const fn is_in_walk(self) -> bool {
        matches!(self, Self::EarlyOptimization | Self::Loop | Self::Scalar)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something to run beside or in a stage, as LLVM reads it.
#[derive(Clone, Debug)]
pub(super) enum StagePiece {
    /// Passes of the stage's kind.
    Passes(String),
    /// A pass of the host, which there is for modules and functions alike.
    Host(String),
}

impl StagePiece {
    fn text(&self) -> &str {
        let (Self::Passes(text) | Self::Host(text)) = self;
        text
    }
}

/// A pipeline of LLVM's, cut.
#[derive(Debug)]
pub(super) struct Stages {
    stages: [String; Stage::ALL.len()],
    /// Opens and closes the walk, in which three stages run over each function. Empty at O0, which has no walk.
    walk: [String; 2],
    /// Passes over the module between the walk and the vectorization.
    behind_walk: String,
    /// Opens the passes over functions.
    functions: String,
}

impl Stages {
    /// Cuts `text`, LLVM's pipeline for `level`. `None` if it is not built as it was.
    pub(super) fn cut(text: &str, level: OptimizationLevel) -> Option<Self> {
        let all = elements(text);
        let is = |element: &str, name: &str| element == name;
        let begins = |element: &str, name: &str| element.starts_with(name);
        let place = |from: usize, fits: &dyn Fn(&str) -> bool| {
            Some(from + all.get(from..)?.iter().position(|element| fits(element))?)
        };
        if level == OptimizationLevel::O0 {
            let cleanup = place(0, &|element| is(element, "alloc-token"))?;
            let mut stages = [const { String::new() }; Stage::ALL.len()];
            stages[Stage::EarlySimplification as usize] = all[..cleanup].join(",");
            stages[Stage::Cleanup as usize] = all[cleanup..].join(",");
            return Some(Self {
                stages,
                walk: Default::default(),
                behind_walk: String::new(),
                functions: "function(".to_owned(),
            });
        }
        if !says_its_level(text) {
            return None;
        }
        let walk = place(0, &|element| is(element, "require<globals-aa>"))?;
        let inliner = place(walk, &|element| begins(element, "cgscc("))?;
        let (before, within, after) = opened(all[inliner], "function<eager-inv;no-rerun>(")?;
        let simplification = elements(within);
        let loops = simplification.iter().position(|element| begins(element, "loop-mssa("))?;
        let loops_end =
            loops + 1 + simplification[loops..].iter().position(|element| begins(element, "loop("))?;
        let functions = place(inliner + 1, &|element| begins(element, "function<eager-inv>("))?;
        let (opening, within, _) = opened(all[functions], "function<eager-inv>(")?;
        let optimization = elements(within);
        let lowering = optimization.iter().position(|element| is(element, "alignment-from-assumptions"))?;
        let mut opening_walk = all[walk..inliner].to_vec();
        opening_walk.push(before);
        Some(Self {
            stages: [
                all[..walk].join(","),
                simplification[..loops].join(","),
                simplification[loops..loops_end].join(","),
                simplification[loops_end..].join(","),
                optimization[..lowering].join(","),
                optimization[lowering..].join(","),
                all[functions + 1..].join(","),
            ],
            walk: [opening_walk.join(","), after.to_owned()],
            behind_walk: all[inliner + 1..functions].join(","),
            functions: opening.to_owned(),
        })
    }

    /// The passes of a stage.
    pub(super) fn passes(&self, stage: Stage) -> &str {
        &self.stages[stage as usize]
    }

    /// The whole text up to the end of `last`. `pieces` says what stands in each stage's place.
    pub(super) fn text(&self, last: Stage, pieces: impl Fn(Stage) -> Vec<StagePiece>) -> String {
        let within = |stages: &[Stage]| -> Vec<StagePiece> {
            let wanted = stages.iter().filter(|&&stage| stage <= last);
            wanted.flat_map(|&stage| pieces(stage)).filter(|piece| !piece.text().is_empty()).collect()
        };
        let [walked, optimized] = [&Stage::ALL[1..4], &Stage::ALL[4..6]].map(within);
        let module = |stage: Stage| within(&[stage]).into_iter().map(|piece| piece.text().to_owned());
        let mut text: Vec<String> = module(Stage::EarlySimplification).collect();
        let has_walk = !self.walk[0].is_empty();
        if has_walk && last > Stage::EarlySimplification {
            // LLVM does not read an empty list.
            let passes: Vec<&str> = walked.iter().map(StagePiece::text).collect();
            let passes = if passes.is_empty() { "no-op-function".to_owned() } else { passes.join(",") };
            text.push(format!("{}{passes}{}", self.walk[0], self.walk[1]));
        } else {
            text.extend(self.over_functions(&walked));
        }
        if has_walk && last >= Stage::Scalar {
            text.push(self.behind_walk.clone());
        }
        text.extend(self.over_functions(&optimized));
        if last == Stage::Cleanup {
            text.extend(module(Stage::Cleanup));
        }
        text.join(",")
    }

    /// Passes run over one function after another, up to a pass of the host's, which sees the whole module.
    fn over_functions(&self, pieces: &[StagePiece]) -> Vec<String> {
        let mut text = Vec::new();
        for run in pieces.chunk_by(|a, b| matches!((a, b), (StagePiece::Passes(_), StagePiece::Passes(_)))) {
            let passes = run.iter().map(StagePiece::text).collect::<Vec<_>>().join(",");
            match run[0] {
                StagePiece::Passes(_) => text.push(format!("{}{passes})", self.functions)),
                StagePiece::Host(_) => text.push(passes),
            }
        }
        text
    }
}

/// Whether the shim found LLVM's inliner and put in front of it how eager it is at this level, which LLVM's text does not say.
pub(super) fn says_its_level(text: &str) -> bool {
    text.contains("uruk-inliner<")
}

/// The elements of a list of passes, each with the text in its parentheses.
fn elements(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    if start < text.len() {
        found.push(&text[start..]);
    }
    found
}

/// The texts before `opening`, inside its parenthesis, and from that parenthesis' end.
fn opened<'a>(text: &'a str, opening: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let start = text.find(opening)? + opening.len();
    let mut depth = 1_usize;
    for (place, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..start], &text[start..place], &text[place..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart_at_their_own_commas() {
        assert_eq!(elements("a,f(b,g(c,d)),e<x;y>"), ["a", "f(b,g(c,d))", "e<x;y>"]);
        assert_eq!(elements(""), [""; 0]);
        assert_eq!(opened("x(f(a,g(b)),c)", "f("), Some(("x(f(", "a,g(b)", "),c)")));
        assert_eq!(opened("f(a", "f("), None);
    }

    #[test]
    fn stages_are_known_by_name() {
        assert!(Stage::ALL.into_iter().all(|stage| Stage::by_name(stage.name()) == Some(stage)));
        assert_eq!(Stage::by_name("loops"), None);
    }
}
