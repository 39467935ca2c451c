//! A speculator's part in traces: functions are noted when they are compiled, and found by the lines of a trace.

use std::collections::{HashMap, HashSet};

use uruk_core::sync::atomic::Ordering;
use uruk_core::{JitDylib, SymbolName};

use super::known::{KnownFunction, LazyUnit};
use super::order::FunctionOfFile;
use super::speculator::Speculator;
use super::trace::{CompileTrace, TracedFunction};
use super::trace_file::CompileTraceFile;
use crate::tiers::Tier;

impl Speculator {
    /// Has functions noted in `file` when they are compiled because they are called, and when they are compiled better: those of files that
    /// are added from now on, by this process and its children. A second file is not taken; the first one stays.
    pub fn trace_to(&self, file: CompileTraceFile) {
        self.compare_sources();
        _ = self.0.trace.set(file);
    }

    /// Has files of one name told apart by their contents: those that are added from now on.
    ///
    /// # Cost
    /// A hash of each file of LLVM IR.
    pub fn compare_sources(&self) {
        self.0.compares_sources.store(true, Ordering::Relaxed); // who is late is not compared
    }

    /// The file that functions are noted in.
    pub fn trace(&self) -> Option<&CompileTraceFile> {
        self.0.trace.get()
    }

    /// The bodies of the functions of a trace, in its order, and how many of the functions no file has. A name that several files have
    /// means the file with the same contents, if there is one, and otherwise all of them.
    ///
    /// # Cost
    /// A table of all lazy functions, while this runs.
    pub fn find(&self, trace: &CompileTrace) -> (Vec<(JitDylib, SymbolName)>, usize) {
        let units = self.units();
        let mut known: HashMap<FunctionOfFile, Vec<(&LazyUnit, &KnownFunction)>> = HashMap::new();
        for unit in &units {
            for function in &unit.functions {
                unit.names(function).for_each(|name| known.entry(name).or_default().push((unit, function)));
            }
        }
        let (mut bodies, mut unknown, mut seen) = (Vec::new(), 0, HashSet::new());
        for TracedFunction { function, source } in &trace.functions {
            let Some(found) = known.get(function) else {
                unknown += 1;
                continue;
            };
            let is_exact = found.iter().any(|(unit, _)| unit.is_of(*source));
            for (unit, function) in found.iter().filter(|(unit, _)| !is_exact || unit.is_of(*source)) {
                if let Some(dylib) = unit.dylib.upgrade()
                    && seen.insert(&function.body)
                {
                    bodies.push((dylib, function.body.clone()));
                }
            }
        }
        (bodies, unknown)
    }
}

impl Speculator {
    #[cfg(feature = "llvm")]
    pub(crate) fn wants_sources(&self) -> bool {
        self.0.compares_sources.load(Ordering::Relaxed) // as in `compare_sources`
    }

    /// Notes a function in the trace that was compiled because it was called. Does nothing the second time.
    pub(super) fn note_compiled(
        &self,
        unit: &LazyUnit,
        function: &KnownFunction,
        tier: impl FnOnce() -> Tier,
    ) {
        if let Some(trace) = self.trace().filter(|_| unit.is_compiled())
            && function.note_traced()
            && let Some(traced) = unit.traced(function)
        {
            trace.note(&traced, tier());
        }
    }

    /// Notes a function in the trace that was compiled better.
    pub(super) fn note_promoted(&self, unit: &LazyUnit, function: &KnownFunction) {
        if let Some((trace, traced)) = self.trace().zip(unit.traced(function)) {
            trace.note(&traced, Tier::Upper);
        }
    }
}
