//! The symbol protocol.

use std::fmt;

use super::families::{ALONE, Families};
use crate::engine::Engine;

pub(super) fn write(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let figures = engine.session.metrics();
    families.counters(
        ("uruk_session_dependencies", None),
        "Dependencies of emitted symbols that were not Ready",
        [(ALONE, figures.edges)],
    )?;
    let steps = [
        ("edge", figures.edge_visits),
        ("root", figures.root_steps),
        ("cycle", figures.cycle_steps),
        ("failure", figures.failure_steps),
    ];
    families.counters(
        ("uruk_session_steps", None),
        "Steps along dependencies, by what they look for",
        steps.map(|(kind, steps)| ([("kind", kind)], steps)),
    )?;
    families.counters(
        ("uruk_session_withdrawn_units", None),
        "Claimed units that were given back before they began",
        [(ALONE, figures.withdrawn_units)],
    )?;
    families.gauges(
        ("uruk_session_hold_steps_max", None),
        "The most steps of one hold of the session's lock",
        [(ALONE, figures.hold_steps_max)],
    )
}
