//! `--perf`: the files that a profiler reads.

use clap::ValueEnum;
use uruk::pipeline::debug::PerfFormat;

/// `--perf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PerfArg {
    /// Names of functions, which `perf report` reads.
    Map,
    /// Names, code and lines, which `perf inject --jit` reads.
    Jitdump,
}

impl From<PerfArg> for PerfFormat {
    fn from(argument: PerfArg) -> Self {
        match argument {
            PerfArg::Map => Self::Map,
            PerfArg::Jitdump => Self::JitDump,
        }
    }
}
