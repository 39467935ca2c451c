//! [`CollectedObjects`]: the objects of a program, as the session has them linked one by one, to be linked once more as one.

use std::collections::{HashMap, HashSet};

use uruk_core::MaterializationResponsibility;
use uruk_core::sync::Mutex;

use crate::link::{LinkError, parts};
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
    links: Vec<CollectedLink>,
    /// By the names of files.
    sources: HashMap<Box<str>, ObjectBuffer>,
}

/// A file, as the unit of a package has to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedSource {
    /// Its key.
    pub key: [u8; 32],
    /// The definitions of others that it has copies of.
    pub copies: Vec<Box<str>>,
}

/// The objects of one link, or of several that have to lie together.
#[derive(Debug, Default)]
pub struct CollectedLink {
    /// Its objects, each with its place in link order. Those that the engine made itself come last.
    objects: Vec<(u32, ObjectBuffer)>,
    units: Vec<Box<str>>,
    /// The definitions that its units have promised: the others are its own.
    pub promised: HashSet<Box<str>>,
    discarded: HashSet<Box<str>>,
    /// The names of its files, with the keys that were noted of them.
    pub sources: Vec<(Box<str>, [u8; 32])>,
    /// Definitions of others that its files have copies of, so that its code may contain theirs.
    pub copies: Vec<Box<str>>,
}

impl CollectedObjects {
    /// Notes a file, whose unit has the same name. Nothing of it is read before [units](Self::take_units) are asked for.
    pub fn note_source(&self, source: &ObjectBuffer) {
        self.collected.lock().sources.insert((**source.name()).into(), source.clone());
    }

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
        let promised = units.iter().flat_map(|unit| unit.symbols().keys());
        let link = CollectedLink {
            objects: units.iter().map(order).zip(objects.iter().cloned()).collect(),
            units: units.iter().map(|unit| unit.unit_name().into()).collect(),
            promised: promised.map(|name| name.as_str().into()).collect(),
            discarded: discarded.clone(),
            sources: Vec::new(),
            copies: Vec::new(),
        };
        self.collected.lock().links.push(link);
    }

    /// Takes the objects in link order, and the names whose definitions in them do not count.
    pub fn take(&self) -> (Vec<ObjectBuffer>, HashSet<Box<str>>) {
        let links = std::mem::take(&mut *self.collected.lock()).links;
        let whole = links.into_iter().fold(CollectedLink::default(), CollectedLink::join);
        (whole.objects(), whole.discarded())
    }

    /// Takes the links in link order. Those whose objects refer to each other directly are one. `about` is asked once for each file that was
    /// noted and takes part, without the lock.
    ///
    /// # Errors
    /// [`LinkError`] of an object that is broken.
    pub fn take_units(
        &self,
        about: impl Fn(&ObjectBuffer) -> CollectedSource,
    ) -> Result<Vec<CollectedLink>, LinkError> {
        let LinkedParts { mut links, sources } = std::mem::take(&mut *self.collected.lock());
        for link in &mut links {
            for (name, source) in link.units.iter().filter_map(|name| sources.get_key_value(name)) {
                let CollectedSource { key, copies } = about(source);
                link.sources.push((name.clone(), key));
                link.copies.extend(copies);
            }
        }
        let mut joined = join_direct(links)?;
        joined.iter_mut().for_each(CollectedLink::sort);
        joined.sort_by_cached_key(|link| {
            link.objects.first().map(|(order, object)| (*order, object.name().clone()))
        });
        Ok(joined)
    }
}

impl CollectedLink {
    /// Its objects, in link order.
    pub fn objects(&self) -> Vec<ObjectBuffer> {
        let mut objects = self.objects.clone();
        sort(&mut objects);
        objects.into_iter().map(|(_, object)| object).collect()
    }

    /// The names whose definitions in it do not count. A name that is one object's lost in the others alone.
    pub fn discarded(&self) -> HashSet<Box<str>> {
        self.discarded.difference(&self.promised).cloned().collect()
    }

    /// The name of its first object.
    pub fn name(&self) -> &str {
        self.objects.first().map_or("", |(_, object)| object.name())
    }

    fn sort(&mut self) {
        sort(&mut self.objects);
        self.sources.sort_unstable();
    }

    fn join(mut self, other: Self) -> Self {
        let Self { objects, units, promised, discarded, sources, copies } = other;
        self.objects.extend(objects);
        self.units.extend(units);
        self.promised.extend(promised);
        self.discarded.extend(discarded);
        self.sources.extend(sources);
        self.copies.extend(copies);
        self
    }
}

/// Joins links that refer to each other by distances.
fn join_direct(links: Vec<CollectedLink>) -> Result<Vec<CollectedLink>, LinkError> {
    let mut homes = HashMap::<Box<str>, usize>::new();
    let mut direct = Vec::new();
    for (number, link) in links.iter().enumerate() {
        for (_, object) in &link.objects {
            let graph = parts::parse(object)?;
            homes.extend(
                graph
                    .defined_names()
                    .filter(|name| link.promised.contains(*name))
                    .map(|name| (name.into(), number)),
            );
            direct.extend(graph.direct_references().map(|name| (number, Box::<str>::from(name))));
        }
    }
    // Each link leads to an earlier one of its set, or to itself.
    let mut first: Vec<usize> = (0..links.len()).collect();
    let first_of = |first: &[usize], mut link: usize| {
        while first[link] != link {
            link = first[link];
        }
        link
    };
    for (number, name) in direct {
        let Some(home) = homes.get(&name) else { continue };
        let (one, other) = (first_of(&first, number), first_of(&first, *home));
        first[one.max(other)] = one.min(other);
    }
    let mut joined: Vec<Option<CollectedLink>> = Vec::with_capacity(links.len());
    for (number, link) in links.into_iter().enumerate() {
        joined.push(None);
        let place = &mut joined[first_of(&first, number)];
        *place = Some(place.take().unwrap_or_default().join(link));
    }
    Ok(joined.into_iter().flatten().collect())
}

fn sort(objects: &mut [(u32, ObjectBuffer)]) {
    objects.sort_by(|(one, left), (other, right)| (one, left.name()).cmp(&(other, right.name())));
}
