#![doc = include_str!("README.md")]

mod code;
mod families;
mod pool;
mod session;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use uruk_core::sync::{Arc, Weak};

use self::families::Families;
use crate::engine::Engine;
use crate::jit::Jit;

/// The metrics of one engine: a [`Collector`] for a registry of the host's own. They are read when they are asked for, and nothing is
/// counted for them that is not counted anyway.
///
/// An engine that has ended has none. A clone is of the same engine.
///
/// # Concurrency
/// Reading takes the session's lock and that of the code's memory for a moment each, and asks the system what is resident, as
/// [`Jit::memory_usage`] does.
///
/// # Examples
/// ```
/// use prometheus_client::registry::Registry;
///
/// # fn main() -> Result<(), uruk::JitError> {
/// let jit = uruk::Jit::builder().threads(1).build()?;
/// let mut registry = Registry::default();
/// // The label tells engines apart, where there are several.
/// let engines = registry.sub_registry_with_label(("engine".into(), "queries".into()));
/// engines.register_collector(Box::new(jit.metrics()));
///
/// assert!(jit.metrics().text().contains("uruk_pool_workers 1\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EngineMetrics {
    /// Not kept: a registry often lives as long as the process.
    engine: Weak<Engine>,
}

impl Jit {
    /// The engine's [metrics](crate::metrics), for a registry of the host's own or [as text](EngineMetrics::text).
    pub fn metrics(&self) -> EngineMetrics {
        EngineMetrics { engine: Arc::downgrade(&self.engine) }
    }
}

impl EngineMetrics {
    /// The type of [`text`](Self::text), for the header `Content-Type` of a host's own answer.
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// The metrics now, in the OpenMetrics text format, which Prometheus reads.
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        // Nothing is refused by a `String`.
        let _ = text::encode(&mut text, &registry);
        text
    }

    /// Whether there is still an engine to read.
    pub fn has_engine(&self) -> bool {
        self.engine.strong_count() > 0
    }
}

impl Collector for EngineMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut families = Families::new(encoder);
        families.info("uruk", "The engine's version", [("version", env!("CARGO_PKG_VERSION"))])?;
        session::write(&engine, &mut families)?;
        pool::write(&engine, &mut families)?;
        code::write(&engine, &mut families)
    }
}

impl fmt::Debug for EngineMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineMetrics").field("has_engine", &self.has_engine()).finish()
    }
}
