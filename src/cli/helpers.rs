//! `--compile-in-helpers`: which processes compile, and their limits.

use std::time::Duration;

use clap::Args;
use uruk::pipeline::helpers::Helpers;

use super::examples::HOW;
use super::values::seconds;

/// The options of helper processes.
#[derive(Debug, Args)]
pub(crate) struct HelperArgs {
    /// Have LLVM read and compile files in N processes of their own [default: one a core], so that a file that crashes it fails with an error
    /// that says how.
    #[arg(
        help_heading = HOW,
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = clap::value_parser!(u16).range(0..=1024),
        conflicts_with_all = ["on_call", "dump"],
    )]
    compile_in_helpers: Option<u16>,

    /// How many MiB of memory a helper may take for its work.
    #[arg(help_heading = HOW, long, value_name = "MIB", default_value = "4096", requires = "compile_in_helpers")]
    helper_memory: u32,

    /// How many seconds a helper may take for a file.
    #[arg(help_heading = HOW, long, value_name = "SECS", default_value = "300", value_parser = seconds, requires = "compile_in_helpers")]
    helper_time: Duration,
}

impl HelperArgs {
    /// The processes that compile: this command, started once more. Nothing if it compiles itself.
    pub(crate) fn settings(&self) -> Option<Helpers> {
        let count = self.compile_in_helpers?;
        // The file that runs, also when an update has put another one in its place.
        let helpers = Helpers::new("/proc/self/exe").argument("compile-helper");
        let helpers = helpers.time_limit(self.helper_time).memory(u64::from(self.helper_memory) << 20);
        Some(if count == 0 { helpers } else { helpers.count(count.into()) })
    }
}
