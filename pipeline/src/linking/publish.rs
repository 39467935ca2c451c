//! Publish: the session learns of the objects of one link, of each by itself.
//!
//! Objects that are linked together refer to each other directly, and yet each is removed by itself, at any moment of the
//! link. Two rules make them as safe as objects that are linked apart:
//!
//! 1. Each has a share of the code before any of them is Ready (`share.rs`).
//! 2. Each depends on its references, inside the link and outside. If one of these is gone or fails before the objects are Ready, only the
//!    objects that refer to it fail.
//!
//! The work here is linear in the objects, their symbols and their references, even if many objects are linked together.

use std::error::Error;

use rustc_hash::FxHashMap;
use uruk_core::sync::Arc;
use uruk_core::{
    DependenceGroup, Dependency, Detached, EmitError, ExecutorAddr, ExecutorSymbolDef, LookupResult,
    MaterializationResponsibility, ResolveError, ResolvedResponsibility, SharedError, SymbolMap, SymbolName,
    shared_error,
};

use super::code::Code;
use super::share::{Owned, Share};
use crate::executor::Initializers;
use crate::link::graph::SymbolId;
use crate::link::merge::ReferencesOfObject;
use crate::link::{Allocated, Link};
use crate::platform::Platform;

/// An object whose addresses the session knows.
pub(super) struct Announced<D = ResolvedResponsibility> {
    pub(super) responsibility: D,
    /// Its place among the objects of the link.
    object: usize,
    /// Its references.
    needs: Needs,
}

/// The references of an object.
enum Needs {
    /// All references of the link: the object is linked alone.
    All,
    /// Other objects of the link, and symbols that are defined elsewhere.
    These(Vec<Dependency>, Vec<SymbolName>),
}

impl Needs {
    fn dependencies(self, found: &LookupResult) -> Vec<Dependency> {
        let Self::These(mut dependencies, externals) = self else { return found.dependencies() };
        // A weak reference may have found nothing.
        dependencies.extend(externals.iter().filter_map(|name| found.dependency(name)));
        dependencies
    }
}

/// The functions of one object that run before or after the program.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) initializers: Initializers,
    /// Descriptors of functions that choose their implementation.
    pub(super) indirect: Vec<ExecutorAddr>,
}

impl Announced {
    /// A unit that is linked alone.
    pub(super) fn alone(responsibility: ResolvedResponsibility) -> Self {
        Self { responsibility, object: 0, needs: Needs::All }
    }

    pub(super) fn detach(self) -> Announced<Detached<ResolvedResponsibility>> {
        let Self { responsibility, object, needs } = self;
        Announced { responsibility: responsibility.detach(), object, needs }
    }
}

impl Announced<Detached<ResolvedResponsibility>> {
    pub(super) fn attach(self) -> Announced {
        let Self { responsibility, object, needs } = self;
        Announced { responsibility: responsibility.attach(), object, needs }
    }
}

/// Announces the addresses of each unit's promised symbols to the session. Units that were removed are left out, and those that refer to
/// them; none is left if an object does not define the symbols that its unit promised.
pub(super) fn announce(
    responsibilities: Vec<MaterializationResponsibility>,
    link: &Link<Allocated>,
) -> Vec<Announced> {
    let Some(first) = responsibilities.first() else { return Vec::new() };
    let session = first.session().clone();
    let definitions: FxHashMap<SymbolName, ExecutorAddr> =
        link.definitions().map(|(name, definition)| (session.intern(name), definition.address)).collect();
    let mut announced = Vec::with_capacity(responsibilities.len());
    for responsibility in responsibilities {
        let addresses = promised_addresses(&responsibility, &definitions);
        match responsibility.notify_resolved(&addresses) {
            Ok(resolved) => announced.push(Some(resolved)),
            Err(refused) => match refused.fail() {
                ResolveError::TrackerDefunct { .. } => announced.push(None),
                error => {
                    fail_all(announced.into_iter().flatten(), error);
                    return Vec::new(); // The parts not yet announced fail as they are dropped.
                }
            },
        }
    }
    with_needs(announced, link)
}

/// The addresses of the unit's promised symbols, with the flags it promised them with.
fn promised_addresses(
    responsibility: &MaterializationResponsibility,
    definitions: &FxHashMap<SymbolName, ExecutorAddr>,
) -> SymbolMap {
    let promised = responsibility.symbols().iter();
    let addresses = promised.filter_map(|(symbol, &flags)| {
        Some((symbol.clone(), ExecutorSymbolDef::new(*definitions.get(symbol)?, flags)))
    });
    addresses.collect()
}

/// Finds the references of each object. An object that needs one that is gone fails.
fn with_needs(announced: Vec<Option<ResolvedResponsibility>>, link: &Link<Allocated>) -> Vec<Announced> {
    if announced.len() == 1 {
        let alone = announced.into_iter().flatten();
        return alone.map(Announced::alone).collect();
    }
    // All symbols of an object stand and fall together, so that one of them will do.
    let token = |resolved: &ResolvedResponsibility| {
        resolved.initializer_symbol().and_then(|symbol| resolved.dependency(symbol))
    };
    let tokens: Vec<_> = announced.iter().map(|resolved| resolved.as_ref().and_then(token)).collect();
    let graph = link.graph();
    let objects = announced.into_iter().zip(graph.references_of_objects()).enumerate();
    let mut standing = Vec::with_capacity(tokens.len());
    for (object, (resolved, ReferencesOfObject { objects, externals })) in objects {
        let Some(responsibility) = resolved else { continue };
        match objects.into_iter().map(|needed| tokens[needed]).collect::<Option<Vec<_>>>() {
            Some(objects) => {
                let name = |id: SymbolId| responsibility.session().intern(graph.symbol_name(id));
                let needs = Needs::These(objects, externals.into_iter().map(name).collect());
                standing.push(Announced { responsibility, object, needs });
            }
            None => {
                let unit = responsibility.session().intern(responsibility.unit_name());
                let dependants = responsibility.symbols().keys().cloned().collect();
                responsibility.fail(Arc::new(EmitError::DependencyRemoved { unit, dependants }));
            }
        }
    }
    standing
}

/// Gives each object's tracker its share of the code and tells the session that the code is there.
///
/// Functions are recorded before the symbols are Ready, so that every thread that has found the symbols sees the record. They are not
/// handed out before the symbols are Ready (`platform.rs`).
pub(super) fn publish(
    code: Arc<Code>,
    mut functions: Vec<Functions>,
    found: &LookupResult,
    announced: Vec<Announced>,
    platform: &Platform,
) {
    let number = code.ends_with(announced.len());
    let code = Owned::new(code, number);
    let mut owned = Vec::with_capacity(announced.len());
    for (number_of_share, Announced { responsibility, object, needs }) in announced.into_iter().enumerate() {
        let Functions { initializers, indirect } =
            functions.get_mut(object).map(std::mem::take).unwrap_or_default();
        let recorded = platform.record(&responsibility, number, initializers, indirect);
        let share = Share::new(recorded, &code, number_of_share);
        match responsibility.add_resource(Box::new(share.clone())) {
            Ok(()) => owned.push((responsibility, needs, share)),
            // It was removed; the resource has been dropped, and this is the rest of it.
            Err(error) => {
                share.give_up();
                responsibility.fail(Arc::new(error));
            }
        }
    }
    drop(code);
    for (responsibility, needs, share) in owned {
        let symbols = responsibility.symbols().keys().cloned().collect();
        let dependencies = needs.dependencies(found);
        if let Err(refused) = responsibility.notify_emitted(vec![DependenceGroup { symbols, dependencies }]) {
            share.give_up();
            refused.fail();
        }
    }
}

/// Fails every duty with the same cause.
pub(super) fn fail_all<R: Failing>(
    responsibilities: impl IntoIterator<Item = R>,
    error: impl Into<Box<dyn Error + Send + Sync>>,
) {
    let error = shared_error(error);
    for responsibility in responsibilities {
        responsibility.fail_with(error.clone());
    }
}

/// A duty that can be failed, in either of its steps.
pub(super) trait Failing {
    fn fail_with(self, error: SharedError);
}

impl Failing for MaterializationResponsibility {
    fn fail_with(self, error: SharedError) {
        self.fail(error);
    }
}

impl Failing for ResolvedResponsibility {
    fn fail_with(self, error: SharedError) {
        self.fail(error);
    }
}
