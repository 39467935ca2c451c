//! What random scenarios share: how long they run, units made of closures.

use std::time::Duration;

use shuttle::scheduler::RandomScheduler;
use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SymbolFlags, SymbolFlagsMap, SymbolName,
};

/// Runs `scenario` under `iterations` random schedules, or under as many as `URUK_SHUTTLE_ITERATIONS` says or
/// `URUK_SHUTTLE_SECONDS` leaves time for.
///
/// The seed is new in each process; the one of a schedule that fails is printed, and `SHUTTLE_RANDOM_SEED` sets it.
pub(crate) fn explore(iterations: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // A session's frames are deeper than shuttle expects of a thread.
    config.stack_size = 512 << 10;
    config.silence_warnings = true;
    let (seconds, fixed) = (number("URUK_SHUTTLE_SECONDS"), number("URUK_SHUTTLE_ITERATIONS"));
    config.max_time = seconds.map(|seconds| Duration::from_secs(seconds as u64));
    let iterations = fixed.unwrap_or(if seconds.is_some() { usize::MAX } else { iterations });
    shuttle::Runner::new(RandomScheduler::new(iterations), config).run(scenario);
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

type Script = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// A unit that does what a closure says.
pub(crate) struct Scripted {
    symbols: SymbolFlagsMap,
    materialize: Script,
}

impl Scripted {
    pub(crate) fn new(
        symbols: impl IntoIterator<Item = (SymbolName, SymbolFlags)>,
        materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) -> Box<Self> {
        Box::new(Self { symbols: symbols.into_iter().collect(), materialize: Box::new(materialize) })
    }
}

impl MaterializationUnit for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.materialize)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// The definitions of all of a responsibility's symbols, at `address`.
pub(crate) fn all_at(responsibility: &MaterializationResponsibility, address: u64) -> uruk_core::SymbolMap {
    let at = |(name, flags): (&SymbolName, &SymbolFlags)| {
        (name.clone(), ExecutorSymbolDef::new(ExecutorAddr::new(address), *flags))
    };
    responsibility.symbols().iter().map(at).collect()
}
