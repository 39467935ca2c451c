//! [`Families`]: metrics of one name, written with all their labels.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use uruk_core::TaskPriority;

/// A label: its name and its value. Each has few values, which are known here.
pub(super) type Label = (&'static str, &'static str);

/// No label.
pub(super) const ALONE: [Label; 0] = [];

/// Writes families of metrics: one a call.
pub(super) struct Families<'e>(DescriptorEncoder<'e>);

impl<'e> Families<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    /// Facts, as labels.
    pub(super) fn info(&mut self, name: &str, help: &str, facts: impl EncodeLabelSet) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(&facts)
    }

    /// Figures that only grow. Their name ends with `_total`, which is added.
    pub(super) fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        (name, unit): (&str, Option<Unit>),
        help: &str,
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, V, u64>(&value, None)?;
        }
        Ok(())
    }

    /// Figures as they are now. The unit is added to the name.
    pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        (name, unit): (&str, Option<Unit>),
        help: &str,
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Times in seconds, in buckets by their upper ends.
    pub(super) fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, Times)>,
    ) -> fmt::Result {
        let unit = Some(Unit::Seconds);
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Histogram)?;
        for (labels, Times { total, buckets }) in rows {
            let count = buckets.iter().map(|(_, count)| count).sum();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(total, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// Times in seconds: their sum, and how many end in each bucket.
pub(super) struct Times {
    pub(super) total: f64,
    pub(super) buckets: Vec<(f64, u64)>,
}

/// A row for each priority.
pub(super) fn by_priority<V>(value: impl Fn(TaskPriority) -> V) -> impl Iterator<Item = ([Label; 1], V)> {
    use TaskPriority::{Demanded, Idle, Lazy, Speculative};
    let names = [(Demanded, "demanded"), (Lazy, "lazy"), (Speculative, "speculative"), (Idle, "idle")];
    names.into_iter().map(move |(priority, name)| ([("priority", name)], value(priority)))
}
