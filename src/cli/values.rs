//! Values of options, read from their text.

use std::time::Duration;

use uruk::pipeline::ir::{OptimizationLevel, Partition, PartitionPolicy, Stage};

/// `-O`: the letter or digit of a level.
pub(super) fn level(text: &str) -> Result<OptimizationLevel, String> {
    let named = |level: &OptimizationLevel| level.to_string().strip_prefix('O') == Some(text);
    OptimizationLevel::ALL.into_iter().find(named).ok_or_else(|| "it is 0, 1, 2, 3, s or z".to_owned())
}

/// A time in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|seconds| !seconds.is_zero())
        .ok_or_else(|| "it is a number of seconds: 10, or 0.5".to_owned())
}

/// A stage of the pipeline.
pub(super) fn stage(text: &str) -> Result<Stage, String> {
    let names = || Stage::ALL.map(Stage::name).join(", ");
    Stage::by_name(text).ok_or_else(|| format!("the stages are {}", names()))
}

/// `STAGE=PASSES`.
pub(super) fn stage_passes(text: &str) -> Result<(Stage, String), String> {
    let (name, passes) = text.split_once('=').ok_or("it is STAGE=PASSES: scalar=sroa,gvn")?;
    Ok((stage(name)?, passes.to_owned()))
}

/// `--partition`.
pub(super) fn policy(text: &str) -> Result<PartitionPolicy, String> {
    match text {
        "whole" => Ok(PartitionPolicy::Whole),
        "late" => Ok(PartitionPolicy::Late),
        "early" => Ok(PartitionPolicy::Early),
        _ => Err("it is `whole`, `late` or `early`".to_owned()),
    }
}

/// The number of processors that this process may use: the default of `--jobs`.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `--partition`, `--parts` and `--jobs`: how modules are divided.
pub(super) fn partition(policy: PartitionPolicy, parts: Option<u16>, jobs: Option<u16>) -> Partition {
    match parts {
        Some(parts) => Partition::new(policy, parts.into()).of_all_modules(),
        None => Partition::new(policy, jobs.map_or_else(cores, usize::from)),
    }
}
