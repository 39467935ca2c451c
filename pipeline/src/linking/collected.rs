//! [`CollectedObjects`]: the objects of a program, as the session has them linked one by one, to be linked once more as one.

use std::collections::HashSet;

use uruk_core::MaterializationResponsibility;
use uruk_core::sync::Mutex;

use crate::object::ObjectBuffer;
use crate::platform::Platform;

/// The objects that a layer has linked.
///
/// The session has decided by then which of them take part, which definitions count, and that nothing is undefined.
///
/// # Concurrency
/// One lock, held for additions to lists.
#[derive(Debug, Default)]
pub struct CollectedObjects {
    collected: Mutex<LinkedParts>,
}

#[derive(Debug, Default)]
struct LinkedParts {
    /// Each with its place in link order. Objects that the engine made itself come last.
    objects: Vec<(u32, ObjectBuffer)>,
    promised: HashSet<Box<str>>,
    discarded: HashSet<Box<str>>,
}

impl CollectedObjects {
    pub(super) fn add(
        &self,
        units: &[MaterializationResponsibility],
        objects: &[ObjectBuffer],
        discarded: &HashSet<Box<str>>,
        platform: &Platform,
    ) {
        let order = |unit: &MaterializationResponsibility| {
            unit.initializer_symbol().and_then(|symbol| platform.order(symbol)).unwrap_or(u32::MAX)
        };
        let orders: Vec<u32> = units.iter().map(order).collect();
        let LinkedParts { objects: all, promised, discarded: lost } = &mut *self.collected.lock();
        all.extend(orders.into_iter().zip(objects.iter().cloned()));
        promised.extend(units.iter().flat_map(|unit| unit.symbols().keys()).map(|name| name.as_str().into()));
        lost.extend(discarded.iter().cloned());
    }

    /// Takes the objects in link order, and the names whose definitions in them do not count.
    pub fn take(&self) -> (Vec<ObjectBuffer>, HashSet<Box<str>>) {
        let LinkedParts { mut objects, promised, mut discarded } =
            std::mem::take(&mut *self.collected.lock());
        objects.sort_by(|(one, left), (other, right)| (one, left.name()).cmp(&(other, right.name())));
        // A name that is one object's lost in the others alone.
        discarded.retain(|name| !promised.contains(name));
        (objects.into_iter().map(|(_, object)| object).collect(), discarded)
    }
}
