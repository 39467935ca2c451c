//! Images in a session: one unit that is the whole image, and small ones for the names that are asked for.
//!
//! ```text
//!   lookup ─▶ generator ─▶ unit of the names ──needs──▶ unit of the image ─imports─▶ session
//!                │ index of the file                        └ bind, publish: as a link ends
//! ```
//!
//! The names of an image are in the index of its file. A lookup that misses one in the dylib asks the generator, which defines those that
//! the image has. So a session knows the names that it has asked for, and no others.
//!
//! An image is Ready as a whole: its parts refer to each other directly. Every name depends on the unit of the image, which depends on the
//! definitions of its imports, so removal and failure spread as they do among objects.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupRequest, LookupResult, LookupSet,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolFlags,
    SymbolFlagsMap, SymbolLookupFlags, SymbolMap, SymbolName, WeakResourceTracker, shared_error,
};

use super::code::Code;
use super::failed::{Failed, refused};
use super::image_generator::ImageGenerator;
use super::image_names::{MappedImage, names};
use super::layer::ObjectLinkingLayer;
use super::placements::NotedTls;
use super::publish::{Announced, Functions, publish};
use super::share::LinkedCode;
use crate::executor::{Actions, CodeExtent, TlsImage, TlsPlacement, TlsReservation, UnwindTable};
use crate::image::{
    BindError, ImageError, ImageFile, ImageFlags, ImageReader, SymbolTraits, bind, choose, needed_distances,
};
use crate::link::RebaseTo;
use crate::link::elf::Refs32;
use crate::memory::{Backing, InFlightAlloc, MappedFile};
use crate::object::{References, UnitTraits};

/// The unit of a whole image.
pub struct ImageUnit {
    tables: Arc<MappedImage>,
    mapped: MappedFile,
    layer: Arc<ObjectLinkingLayer>,
}

/// Maps an image for `dylib`. Gives its unit with the traits for a platform, and the generator of its names, whose definitions belong to
/// `tracker` while that has a handle.
///
/// # Errors
/// [`ImageError`].
pub fn image_units(
    image: ImageFile,
    dylib: &JitDylib,
    layer: &Arc<ObjectLinkingLayer>,
    tracker: Option<WeakResourceTracker>,
) -> Result<(ImageUnit, UnitTraits, ImageGenerator), ImageError> {
    image.check_trusted()?;
    layer.announce_image(image.reader());
    // Objects that lie low may read its variables by distances.
    let (reader, mapped) = image.map(layer.executor.memory(), layer.low.is_needed())?;
    let intern = |name: &str| dylib.session().intern(name);
    let anchor = intern(&format!("<image {}>", reader.path().display()));
    let required = reader.imports().filter(|(_, traits)| !traits.contains(SymbolTraits::WEAK));
    let undefined = required.map(|(name, _)| intern(name)).collect();
    let traits = UnitTraits {
        runs_at_start: reader.flags().contains(ImageFlags::RUNS),
        references: References { undefined, ..References::default() },
        ..UnitTraits::default()
    };
    let name = reader.path().display().to_string();
    let tables = Arc::new(MappedImage { base: mapped.base(), reader, anchor });
    let unit = ImageUnit { tables: tables.clone(), mapped, layer: layer.clone() };
    Ok((unit, traits, ImageGenerator::new(tables, name, tracker)))
}

impl MaterializationUnit for ImageUnit {
    fn name(&self) -> &str {
        self.tables.reader.path().to_str().unwrap_or("an image")
    }

    fn interface(&self) -> MaterializationInterface {
        let symbols = [(self.tables.anchor.clone(), SymbolFlags::EXPORTED)];
        MaterializationInterface::new(SymbolFlagsMap::from_iter(symbols))
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { tables, mapped, layer } = *self;
        layer.link_image(responsibility, tables, mapped);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

impl ObjectLinkingLayer {
    /// Notes which definitions elsewhere an image, or a package with its units, reads by distances: to be called before anything is looked up that
    /// they need.
    pub fn announce_image(&self, reader: &ImageReader) {
        let close = reader.imports().filter(|(_, traits)| traits.contains(SymbolTraits::CLOSE));
        let names = close.map(|(name, _)| name).collect();
        self.low.announce(&Refs32 { needs_low_addresses: false, names });
    }

    /// Makes the anchor of an image from its mapped segments, as [`link`](Self::link) makes the symbols of an object.
    fn link_image(
        &self,
        responsibility: MaterializationResponsibility,
        tables: Arc<MappedImage>,
        mapped: MappedFile,
    ) {
        let tls = match self.place_thread_locals(&tables) {
            Ok(tls) => tls,
            Err(error) => return responsibility.fail(shared_error(error)),
        };
        let dylib = responsibility.dylib().clone();
        let session = dylib.session().clone();
        let start = ExecutorSymbolDef::new(ExecutorAddr::new(tables.base), SymbolFlags::EXPORTED);
        let resolved =
            match responsibility.notify_resolved(&SymbolMap::from_iter([(tables.anchor.clone(), start)])) {
                Ok(resolved) => resolved,
                Err(refused) => return drop(refused.fail()),
            };
        let imports = tables.reader.imports().map(|(name, traits)| {
            let is_weak = traits.contains(SymbolTraits::WEAK);
            let weak = SymbolLookupFlags::WeaklyReferencedSymbol;
            (session.intern(name), if is_weak { weak } else { SymbolLookupFlags::RequiredSymbol })
        });
        let imports: LookupSet = imports.collect();
        let request = LookupRequest::new(dylib.link_order(), imports).until_resolved();
        let (layer, detached) = (self.clone(), Announced::alone(resolved).detach());
        session.lookup_async(request, move |answer| {
            let announced = detached.attach();
            let found = match answer {
                Ok(found) => found,
                Err(error) => return announced.responsibility.fail(shared_error(error)),
            };
            match layer.complete_image(&tables, mapped, tls, &found, &dylib) {
                Ok((code, functions)) => {
                    publish(code, vec![functions], &found, vec![announced], &layer.platform);
                }
                Err(error) => announced.responsibility.fail(shared_error(error)),
            }
        });
    }

    /// Takes room for the thread-local variables of an image, and notes their descriptors.
    fn place_thread_locals(
        &self,
        tables: &MappedImage,
    ) -> Result<Option<(TlsReservation, NotedTls)>, Failed> {
        let Some((shape, _)) = tables.reader.thread_locals() else { return Ok(None) };
        let reservation = self.executor.place_tls(shape)?;
        let TlsPlacement { module, offset: own } = reservation.placement();
        let descriptors = tables.reader.descriptors().map(|(address, offset)| {
            let placement = TlsPlacement { module, offset: own.wrapping_add(offset) };
            (ExecutorAddr::new(tables.base + address), placement)
        });
        let noted = self.placements.note(descriptors.collect());
        Ok(Some((reservation, noted)))
    }

    /// Binds and publishes; the code can run afterwards, once what it needs can.
    fn complete_image(
        &self,
        tables: &Arc<MappedImage>,
        mapped: MappedFile,
        tls: Option<(TlsReservation, NotedTls)>,
        found: &LookupResult,
        dylib: &JitDylib,
    ) -> Result<(Arc<Code>, Functions), Failed> {
        let MappedImage { reader, base, .. } = &**tables;
        let base = *base;
        let image: Box<str> = reader.path().display().to_string().into();
        let session = dylib.session();
        let imports: Vec<Option<ExecutorSymbolDef>> =
            reader.imports().map(|(name, _)| found.get(&session.intern(name))).collect();
        let import = |number: u32| imports.get(number as usize).copied().flatten();
        let segments: Vec<u64> = (0..reader.segments().len()).map(|at| mapped.address(at).value()).collect();
        let places = self.thread_local_places(reader, &image, &imports, tls.as_ref().map(|(tls, _)| tls))?;
        let to = RebaseTo {
            segments: &segments,
            import: &|number| import(number).map_or(0, |definition| definition.address.value()),
            entries: self.executor.entries(),
            tls: places.own,
            import_tls: &|number| places.imports.get(number as usize).copied().flatten(),
        };
        let mut memory = InFlightAlloc::new(Box::new(mapped));
        let (target, _) = reader.target_here()?;
        choose(reader, &mut memory, target)?;
        bind(reader, &mut memory, &to, base)?;
        let initializers = reader.functions(base, |number| {
            let function = import(number).filter(|found| found.flags.contains(SymbolFlags::CALLABLE));
            function.map(|found| found.address.value())
        });
        let initializers =
            initializers.map_err(|what| BindError::Damaged { image: image.clone(), what: what.into() })?;
        let indirect = reader.indirect_functions().map(|at| ExecutorAddr::new(base + at)).collect();
        let ranges: Arc<[_]> = reader
            .segments()
            .iter()
            .map(|segment| {
                let start = base + segment.address;
                start..start + segment.content_bytes + segment.zero_fill_bytes
            })
            .collect();
        let unwind = reader.unwind().map(|(code, hdr)| UnwindTable {
            code: base + code.start..base + code.end,
            eh_frame_hdr: base + hdr,
        });
        let actions = Actions {
            tls: reader.thread_locals().map(|(shape, address)| TlsImage {
                address: ExecutorAddr::new(base + address),
                image_bytes: shape.image_bytes,
                total_bytes: shape.total_bytes,
                align: shape.align,
            }),
            names: Some(names(tables, &ranges, unwind.as_ref(), dylib)),
            unwind,
            end: self.platform.home(dylib).map(|home| CodeExtent { home, ranges: ranges.clone() }),
            ..Actions::default()
        };
        let (reservation, noted) = tls.unzip();
        let bytes = memory.bytes().total_bytes();
        let published = self.executor.publish(memory, reservation, actions);
        let code = LinkedCode {
            _tls: noted,
            bytes,
            published: published.map_err(|error| refused(error, &image))?,
            _low_entries: Vec::new(),
        };
        let mut refers_to: Vec<_> = imports.iter().flatten().map(|found| found.address).collect();
        refers_to.sort_unstable();
        refers_to.dedup();
        let code = Code::new(code, ranges, refers_to.into(), None, &self.code);
        Ok((code, Functions { initializers, indirect }))
    }

    /// Where thread-local variables are: the image's own, and those that it imports.
    ///
    /// # Errors
    /// [`BindError::StaticTls`] if one has to be at the same distance on every thread, and is not.
    fn thread_local_places(
        &self,
        reader: &ImageReader,
        image: &str,
        imports: &[Option<ExecutorSymbolDef>],
        own: Option<&TlsReservation>,
    ) -> Result<ThreadLocalPlaces, BindError> {
        let mut places = ThreadLocalPlaces { own: None, imports: vec![None; imports.len()] };
        let (distant, own_is_distant) = needed_distances(reader);
        let refused = |symbol: &str, reason| BindError::StaticTls {
            image: image.into(),
            symbol: symbol.into(),
            reason,
        };
        if let Some(own) = own {
            let distance = self.executor.tls_distance(own.placement());
            let distance = if own_is_distant {
                distance.map_err(|reason| refused("its own thread-local variables", reason))?
            } else {
                0
            };
            places.own = Some((own.placement(), distance));
        }
        for (number, (name, _)) in reader.imports().enumerate() {
            let Some(found) = imports[number] else { continue };
            if !found.flags.contains(SymbolFlags::THREAD_LOCAL) {
                continue;
            }
            let known = self.placements.get(found.address);
            let Some(placement) = known.or_else(|| self.executor.tls_placement(found.address)) else {
                continue;
            };
            let distance = if distant.contains(&(number as u32)) {
                self.executor.tls_distance(placement).map_err(|reason| refused(name, reason))?
            } else {
                0
            };
            places.imports[number] = Some((placement, distance));
        }
        Ok(places)
    }
}

/// Placements and distances from the thread pointer.
struct ThreadLocalPlaces {
    own: Option<(TlsPlacement, i64)>,
    imports: Vec<Option<(TlsPlacement, i64)>>,
}

impl fmt::Debug for ImageUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageUnit").field("image", &self.tables.reader.path()).finish_non_exhaustive()
    }
}
