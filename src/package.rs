//! [`Package`]: an image of many units, in an engine. Each unit is looked at when it is first used.
//!
//! ```text
//!   lookup ─▶ generator ─▶ unit of the name ─check─▶ valid:    its image is mapped, its names are defined
//!                                               └──▶ rejected: its sources are added, as if there were no image
//! ```
//!
//! **Holds.** A unit comes from the image as a whole or from its sources as a whole. Which of the two is decided once. If one of
//! several sources cannot be added, none is, and lookups that need the unit fail. A package that cannot be loaded leaves nothing.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    DefineError, DefinitionGenerator, GenerateRequest, JitDylib, ResourceTracker, SymbolName,
    WeakResourceTracker, shared_error,
};
use uruk_pipeline::image::{ImageError, ImageFile, ImageReader, Redefined, Rejection, UnitStage};
use uruk_pipeline::linking::image_units;
use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer};
use uruk_pipeline::tiers::ImageBody;

use crate::all_or_nothing::all_or_nothing;
use crate::error::JitError;
use crate::files::Files;
use crate::image_options::{ImageOptions, RejectObserver};
use crate::image_unit::{FromImage, ImageEvent, RedefinedUnits, UnitRejected, UnitState};
use crate::loaded_images::RejectedUnits;
use crate::package_bodies::{AboutBody, ImageBodyCounts, UnitBodies, stubs_before};
use crate::package_checks::PackageChecks;
use crate::package_sources::{MatchedSources, SourcePlace, match_sources};
use crate::redefinitions::Redefinable;
use crate::units::FileUnits;

/// A package that was loaded.
pub(crate) struct Package {
    file: Arc<ImageFile>,
    name: String,
    files: Arc<Files>,
    /// The owner of the definitions; without one, the dylib's own tracker is.
    tracker: Option<WeakResourceTracker>,
    on_reject: Option<Arc<RejectObserver>>,
    /// By the numbers of the package's sources.
    sources: Vec<SourcePlace>,
    checks: PackageChecks,
    /// Of the units that are in use, where functions may get other bodies.
    bodies: Mutex<BTreeMap<u32, UnitBodies>>,
}

impl Package {
    /// Looks which of the sources the package was made of, and adds those that are others, or new, to `tracker`. Gives the archives too, without
    /// the members that the package was made of. Definitions that come later belong to `owner`, or to the dylib.
    pub(crate) fn load(
        file: ImageFile,
        options: ImageOptions,
        files: &Arc<Files>,
        tracker: &ResourceTracker,
        owner: Option<WeakResourceTracker>,
    ) -> Result<(Self, Vec<ArchiveIndex>), JitError> {
        let unfit = match file.check_trusted() {
            // Its sources may be compiled for this processor.
            Err(error @ ImageError::Processor { .. }) if !options.sources.is_empty() => {
                Some(error.to_string())
            }
            checked => checked.map(|()| None)?,
        };
        let reader = file.reader();
        files.linking.layer.announce_image(reader);
        let matched = match_sources(reader, files, &options)?;
        let MatchedSources { mut validation, places, new, archives } = matched;
        if let Some(error) = unfit {
            let units: Vec<u32> = (0..reader.packed().len() as u32).collect();
            validation.reject_all(&units, &Rejection::Processor { error: error.into() });
        }
        let (name, file) = (reader.path().display().to_string(), Arc::new(file));
        let dylib = tracker.dylib().downgrade();
        let package = Self {
            name,
            files: files.clone(),
            tracker: owner,
            on_reject: options.on_reject,
            sources: places,
            checks: PackageChecks::new(file.clone(), dylib, options.definitions, validation),
            file,
            bodies: Mutex::default(),
        };
        package.tell();
        for source in new {
            files.add_source(tracker, source)?;
        }
        let changed = package.changed();
        if options.validates_all {
            (0..package.reader().packed().len() as u32).for_each(|unit| package.check(unit));
        }
        // In the order of their numbers, in which what they run at start is to run.
        for (unit, packed) in (0..).zip(package.reader().packed()) {
            if changed.contains(&unit) {
                // Its names may be others than those in the index of the image.
                package.add_sources(tracker, unit)?;
            } else if packed.runs {
                package.bring(tracker, unit)?;
            }
        }
        Ok((package, archives))
    }

    /// The units whose sources are others.
    fn changed(&self) -> HashSet<u32> {
        let is_changed = |reason: &Rejection| matches!(reason, Rejection::Source { .. });
        self.checks.units.with(|validation, _| {
            let changed = validation.rejected().filter(|(_, reason)| is_changed(reason));
            changed.map(|(unit, _)| unit).collect()
        })
    }

    /// The tables.
    pub(crate) fn reader(&self) -> &ImageReader {
        self.file.reader()
    }

    /// The units, by their numbers.
    pub(crate) fn units(&self) -> Vec<(Box<str>, UnitState)> {
        let states = self.checks.units.with(|validation, stages| {
            let staged = (0..).zip(stages.iter());
            staged.map(|(unit, stage)| state_of(*stage, validation.reason(unit))).collect::<Vec<_>>()
        });
        self.reader().packed().map(|unit| unit.name.into()).zip(states).collect()
    }

    /// Rejects the units that contain code of `definition` and are not in use: it is another one from now on. Gives the names of these, and of those
    /// that are in use.
    pub(crate) fn redefined(&self, definition: &str) -> RedefinedUnits {
        let reason = || Rejection::Redefined { definition: definition.into() };
        let Redefined { rejected, in_use } = self.checks.units.redefine(
            |validation| validation.closure_of(self.reader(), definition),
            |validation, units| validation.reject_all(units, &reason()),
        );
        self.tell();
        let name = |unit: u32| self.reader().packed_unit(unit).map_or("", |unit| unit.name).into();
        let names = |units: Vec<u32>| units.into_iter().map(name).collect();
        RedefinedUnits { rejected: names(rejected), in_use: names(in_use) }
    }

    /// Whether references of its units find the definitions of `dylib`.
    fn refers_to(&self, dylib: &JitDylib) -> bool {
        let own = self.checks.dylib.upgrade();
        own.is_some_and(|own| own == *dylib || own.link_order().iter().any(|(other, _)| other == dylib))
    }

    /// The unit that has a symbol.
    pub(crate) fn origin(&self, symbol: &str) -> Option<FromImage> {
        let unit = self.reader().lookup(symbol)?.unit;
        let name = self.reader().packed_unit(unit)?.name.into();
        let state = self.checks.units.with(|validation, stages| {
            Some(state_of(*stages.get(unit as usize)?, validation.reason(unit)))
        })?;
        Some(FromImage { unit: name, state })
    }

    /// The unit that has a source of this name, as it is added.
    fn unit_of_source(&self, name: &str) -> Option<u32> {
        let is_it =
            |place: &SourcePlace| matches!(place, SourcePlace::Here(source) if **source.name() == *name);
        let (source, _) = self.reader().sources().zip(&self.sources).find(|(_, place)| is_it(place))?;
        Some(source.unit)
    }

    /// Brings the units that define `names`, as a lookup would.
    pub(crate) fn bring_all<'n>(
        &self,
        tracker: &ResourceTracker,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), JitError> {
        let mut units: Vec<u32> = names.filter_map(|name| Some(self.reader().lookup(name)?.unit)).collect();
        units.sort_unstable();
        units.dedup();
        units.into_iter().try_for_each(|unit| self.bring(tracker, unit))
    }

    /// Defines a unit that is missing: from its image, or from its sources.
    fn bring(&self, tracker: &ResourceTracker, unit: u32) -> Result<(), JitError> {
        if self.checks.stage(unit) == Some(UnitStage::Used) {
            // It was there, and was removed.
            return Ok(());
        }
        let begun = self.checks.begin_use(unit);
        if begun.is_err() {
            self.tell();
        } else {
            match self.define_image(tracker, unit) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let reason = refusal(error);
                    self.checks.set_stage(unit, UnitStage::Unused);
                    self.reject(unit, reason?);
                }
            }
        }
        self.add_sources(tracker, unit)
    }

    fn define_image(&self, tracker: &ResourceTracker, unit: u32) -> Result<(), JitError> {
        let image = self.file.unit(unit)?;
        let (layer, dylib) = (&self.files.linking.layer, tracker.dylib());
        let (whole, traits, names) = image_units(image, dylib, layer, self.tracker.clone())?;
        let (names, owner) = (Arc::new(names), self.tracker.clone());
        let sources = || self.sources_of(unit);
        let stubs = stubs_before(&self.files, &self.file, unit, &names, sources, (dylib, owner));
        let body_of = |name: &str| Some(stubs.as_ref()?.stubs.body(name)?.into());
        let mut others: Vec<_> = names.unit_of_all(dylib, body_of).into_iter().collect();
        let bodies = stubs.and_then(|stubs| {
            others.push(stubs.unit);
            stubs.bodies
        });
        let own = FileUnits { unit: Box::new(whole), traits, others };
        self.checks.define(tracker.dylib(), own, |own| self.files.define(tracker, own))?;
        self.bodies.lock().extend(bodies.map(|bodies| (unit, bodies)));
        Ok(())
    }

    /// The sources of a unit, if all of them are at hand.
    fn sources_of(&self, unit: u32) -> Option<Vec<ObjectBuffer>> {
        let source = |place: &SourcePlace| match place {
            SourcePlace::Here(source) => Some(source.clone()),
            SourcePlace::Missing | SourcePlace::InArchive => None,
        };
        let known = self.sources.get(self.reader().sources_of(unit))?;
        known.iter().map(source).collect::<Option<Vec<_>>>().filter(|sources| !sources.is_empty())
    }

    /// The bodies of the functions of units that are in use.
    pub(crate) fn bodies(&self) -> ImageBodyCounts {
        let bodies = self.bodies.lock();
        bodies.values().fold(ImageBodyCounts::default(), |counts, unit| counts.with(unit))
    }

    /// The body of a function of a unit that is in use, where functions may get other bodies.
    pub(crate) fn body(&self, function: &str) -> Option<ImageBody> {
        let unit = self.reader().lookup(function)?.unit;
        self.bodies.lock().get(&unit)?.body(function)
    }

    /// Adds the sources of a unit that was rejected, all of them.
    fn add_sources(&self, tracker: &ResourceTracker, unit: u32) -> Result<(), JitError> {
        if self.checks.stage(unit) == Some(UnitStage::FromSource) {
            return Ok(());
        }
        let known = self.reader().sources().zip(&self.sources).filter(|(source, _)| source.unit == unit);
        let (mut sources, mut missing, mut is_known) = (Vec::new(), Vec::new(), false);
        for (source, place) in known {
            is_known = true;
            match place {
                SourcePlace::Missing => missing.push(source.name.into()),
                SourcePlace::Here(source) => sources.push(source.clone()),
                SourcePlace::InArchive => {}
            }
        }
        if !is_known || !missing.is_empty() {
            let missing = |rejected| JitError::UnitRejected(Box::new(UnitRejected { rejected, missing }));
            return self.event(unit).map(missing).map_or(Ok(()), Err);
        }
        self.checks.set_stage(unit, UnitStage::FromSource);
        let added = match &sources[..] {
            [source] => self.files.add_source(tracker, source.clone()),
            sources => all_or_nothing(tracker, |staging| {
                sources.iter().try_for_each(|source| self.files.add_source(staging, source.clone()))
            }),
        };
        if added.is_err() {
            // The next lookup fails as well.
            self.checks.set_stage(unit, UnitStage::Told);
        }
        added
    }

    /// Validates a unit, and nothing more.
    fn check(&self, unit: u32) {
        if self.checks.check(unit).is_err() {
            self.tell();
        }
    }

    fn reject(&self, unit: u32, reason: Rejection) {
        self.checks.units.with(|validation, _| validation.reject(unit, reason));
        self.tell();
    }

    fn event(&self, unit: u32) -> Option<ImageEvent> {
        let reason = self.checks.units.with(|validation, _| validation.reason(unit).cloned());
        Some(self.event_of(unit, &reason?))
    }

    fn event_of(&self, unit: u32, reason: &Rejection) -> ImageEvent {
        let name = self.reader().packed_unit(unit).map_or("", |unit| unit.name);
        ImageEvent { image: self.reader().path().to_owned(), unit: name.into(), reason: reason.clone() }
    }

    /// Tells the host of each unit that was rejected, once.
    fn tell(&self) {
        let events: Vec<ImageEvent> = self.checks.units.with(|validation, stages| {
            let mut untold = Vec::new();
            for (unit, reason) in validation.rejected() {
                let stage = &mut stages[unit as usize];
                if *stage == UnitStage::Unused {
                    *stage = UnitStage::Told;
                    untold.push(self.event_of(unit, reason));
                }
            }
            untold
        });
        if let Some(on_reject) = &self.on_reject {
            events.iter().for_each(|event| on_reject(event));
        }
    }
}

fn state_of(stage: UnitStage, rejected: Option<&Rejection>) -> UnitState {
    match (stage, rejected) {
        // One that contains its code may have found a definition that is another one by now.
        (UnitStage::Used, _) => UnitState::Used,
        (_, Some(reason)) => UnitState::Rejected(reason.clone()),
        (_, None) => UnitState::Unused,
    }
}

/// The reason for which an image of a unit is not used, if its sources may be instead.
fn refusal(error: JitError) -> Result<Rejection, JitError> {
    match error {
        JitError::Define(DefineError::Duplicate { symbol, .. }) => {
            Ok(Rejection::Taken { definition: symbol.as_str().into() })
        }
        JitError::Image(
            error @ (ImageError::Damaged { .. }
            | ImageError::NotImage { .. }
            | ImageError::Length { .. }
            | ImageError::Version { .. }
            | ImageError::Memory { .. }),
        ) => Ok(Rejection::Damaged { error: error.to_string().into() }),
        other => Err(other),
    }
}

impl Redefinable for Package {
    fn note_redefined(&self, dylib: &JitDylib, functions: &[SymbolName]) {
        if self.refers_to(dylib) {
            functions.iter().for_each(|function| drop(self.redefined(function.as_str())));
        }
    }
}

impl RejectedUnits for Package {
    fn first_rejected(&self) -> Option<(Box<str>, Rejection)> {
        let event = self.checks.units.with(|validation, _| {
            validation.rejected().next().map(|(unit, reason)| self.event_of(unit, reason))
        });
        event.map(|event| (event.unit, event.reason))
    }
}

impl DefinitionGenerator for Package {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, request: GenerateRequest) {
        let own = self.tracker.as_ref().and_then(WeakResourceTracker::upgrade);
        let tracker = own.unwrap_or_else(|| request.dylib().default_tracker());
        let names = request.symbols().iter().map(|(name, _)| name.as_str());
        let defined = self.bring_all(&tracker, names);
        request.finish(defined.map_err(shared_error));
    }

    fn about(&self, _: &JitDylib, symbol: &SymbolName, provider: Option<&SymbolName>) -> Option<Box<str>> {
        let provider = provider.map(SymbolName::as_str);
        let known = self.reader().lookup(symbol.as_str()).map(|symbol| symbol.unit);
        let unit = known.or_else(|| self.unit_of_source(provider?))?;
        let name = self.reader().packed_unit(unit)?.name;
        if provider.is_some_and(|provider| provider == self.file.unit_path(unit, name)) {
            let body = self.body(symbol.as_str()).map(|body| AboutBody(body).to_string());
            let body = body.unwrap_or_default();
            return Some(format!("its code is that of image {}, unit {name}{body}", self.name).into());
        }
        if let Some(event) = self.event(unit) {
            return Some(event.to_string().into());
        }
        let is_unused = self.checks.stage(unit) == Some(UnitStage::Unused) && provider.is_none();
        is_unused
            .then(|| format!("image {} has it in unit {name}, which is not in use yet", self.name).into())
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package").field("file", &self.name).finish_non_exhaustive()
    }
}
