//! Tentative definitions: one variable, however many files say `int x;`.
//!
//! A tentative definition asks for room and has no contents. Several of one name are one variable, of the largest size and alignment among
//! them, and a real definition makes all of them references. That is decided among files, so no file can keep its own: each hands them to
//! the [`CommonSymbols`] of its dylib and refers to the variable that results.
//!
//! An archive whose member defines the variable with a value provides it, as for GNU ld: that member joins the program
//! although nothing is missing. Weak definitions, functions, and members that define it tentatively too do not count.
//!
//! Holds: the room is decided by the first lookup of the variable. A later file that needs more is refused.
//!
//! Each tentative definition is offered to the dylib, which keeps one and says whose it is. So a variable that was removed can be
//! defined again, and nothing here has to know of the removal.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;

use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    DefineError, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    Resource, ResourceTracker, SharedError, SymbolFlags, SymbolFlagsMap, SymbolName,
};

use super::{ObjectBuffer, ObjectLayer};
use crate::arch::Architecture;

/// How much room a tentative definition asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonExtent {
    /// The size.
    pub size_bytes: u64,
    /// The alignment.
    pub align: u64,
}

/// Why a tentative definition was not taken up.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommonError {
    /// The dylib refused the variable.
    #[error(transparent)]
    Define(#[from] DefineError),
    /// An archive's definition of the variable was refused.
    #[error("cannot add the archive's definition of `{symbol}`")]
    Archive {
        /// The variable.
        symbol: SymbolName,
        /// Why.
        source: SharedError,
    },
    /// The variable is in use and too small.
    #[error(
        "`{symbol}` of unit `{unit}` asks for {asked:?} and has {given:?} already; add the file before the symbol is looked up"
    )]
    TooLate {
        /// The variable.
        symbol: SymbolName,
        /// The unit that asked for more.
        unit: Box<str>,
        /// How much it asked for.
        asked: CommonExtent,
        /// How much there is.
        given: CommonExtent,
    },
}

/// The variables that files of a session define tentatively.
///
/// # Concurrency
/// Callable from any thread. No lock is held while a dylib is called.
pub struct CommonSymbols {
    layer: Arc<dyn ObjectLayer>,
    known: Arc<Mutex<KnownCommons>>,
}

#[derive(Default)]
struct KnownCommons {
    /// By the name of the unit that offers it, of which there is one.
    rooms: HashMap<Box<str>, Offered>,
    /// By their numbers, with the dylib's name.
    archives: BTreeMap<u64, (Box<str>, Arc<AddDefinition>)>,
    next_archive: u64,
}

/// An archive that [`CommonSymbols::search`] lets provide variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchedArchive(u64);

/// A tentative definition that a dylib may have taken.
#[derive(Clone, Debug)]
struct Offered {
    dylib: Box<str>,
    symbol: SymbolName,
    room: Arc<Mutex<Room>>,
}

/// Keeps the room of a unit known: the unit owns it first, then the tracker of its symbol.
struct Registered {
    unit: Box<str>,
    known: Arc<Mutex<KnownCommons>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let offered = self.known.lock().rooms.remove(&self.unit);
        drop(offered);
    }
}

impl Resource for Registered {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

/// Adds to the dylib the archive's definition of the variable with a value, if there is one.
type AddDefinition = dyn Fn(&JitDylib, &SymbolName) -> Result<(), SharedError> + Send + Sync;

/// The room of one variable.
#[derive(Debug)]
struct Room {
    extent: CommonExtent,
    /// Whether the variable was looked up.
    decided: bool,
}

impl CommonSymbols {
    /// Lets `layer` make room for variables.
    pub fn new(layer: Arc<dyn ObjectLayer>) -> Self {
        Self { layer, known: Arc::default() }
    }

    /// Takes up a tentative definition in the dylib of `tracker`. Without any other definition, it is one, and goes with the tracker.
    ///
    /// # Errors
    /// [`CommonError::TooLate`] if the variable is in use and smaller than `extent`; [`CommonError::Define`]
    /// if the dylib is closed; [`CommonError::Archive`] if an archive's definition is refused.
    pub fn add(
        &self,
        tracker: &ResourceTracker,
        unit: &str,
        symbol: &SymbolName,
        flags: SymbolFlags,
        extent: CommonExtent,
    ) -> Result<(), CommonError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let dylib = tracker.dylib();
        // Relaxed: the numbers only have to differ, so that a unit is known by its name.
        let name: Box<str> = format!("<common `{symbol}` {}>", NEXT.fetch_add(1, Ordering::Relaxed)).into();
        let room = Arc::new(Mutex::new(Room { extent, decided: false }));
        let offered = Offered { dylib: dylib.name().into(), symbol: symbol.clone(), room: room.clone() };
        // Before the definition: another thread may find it at once.
        let archives: Vec<_> = {
            let KnownCommons { rooms, archives, .. } = &mut *self.known.lock();
            rooms.insert(name.clone(), offered);
            let of_dylib = archives.values().filter(|(of, _)| **of == *dylib.name());
            of_dylib.map(|(_, archive)| archive.clone()).collect()
        };
        let unit_of_symbol = CommonUnit {
            symbol: symbol.clone(),
            flags: flags | SymbolFlags::COMMON,
            room,
            layer: self.layer.clone(),
            registered: Registered { unit: name.clone(), known: self.known.clone() },
        };
        dylib.define_with_tracker(Box::new(unit_of_symbol), tracker)?;
        match dylib.unit_providing(symbol) {
            Some(winner) if *winner.as_str() == *name => {
                archives.iter().try_for_each(|archive| add_definition(archive, dylib, symbol))
            }
            Some(winner) => {
                // None if the definition is a real one.
                let earlier =
                    self.known.lock().rooms.get(winner.as_str()).map(|earlier| earlier.room.clone());
                let grown = earlier.map_or(Ok(()), |earlier| earlier.lock().grow(extent));
                let (symbol, asked) = (symbol.clone(), extent);
                grown.map_err(|given| CommonError::TooLate { symbol, unit: unit.into(), asked, given })
            }
            None => Ok(()), // It was removed again.
        }
    }

    /// Lets an archive provide the variables of `dylib` that are defined tentatively, those of earlier files and of later ones. A variable
    /// that is in use already stays as it is.
    ///
    /// # Errors
    /// [`CommonError::Archive`] if the dylib refuses the archive's definition. The archive is not asked again then.
    pub fn search(
        &self,
        dylib: &JitDylib,
        archive: impl Fn(&JitDylib, &SymbolName) -> Result<(), SharedError> + Send + Sync + 'static,
    ) -> Result<SearchedArchive, CommonError> {
        let archive: Arc<AddDefinition> = Arc::new(archive);
        let (number, variables): (_, Vec<_>) = {
            let KnownCommons { rooms, archives, next_archive } = &mut *self.known.lock();
            let number = *next_archive;
            *next_archive += 1;
            archives.insert(number, (dylib.name().into(), archive.clone()));
            let of_dylib = rooms.iter().filter(|(_, offered)| *offered.dylib == *dylib.name());
            (number, of_dylib.map(|(unit, offered)| (unit.clone(), offered.clone())).collect())
        };
        let undecided = variables.iter().filter(|(unit, offered)| {
            let is_it = |provider: &SymbolName| *provider.as_str() == **unit;
            !offered.room.lock().decided && dylib.unit_providing(&offered.symbol).as_ref().is_some_and(is_it)
        });
        let added = undecided
            .map(|(_, offered)| &offered.symbol)
            .try_for_each(|symbol| add_definition(&archive, dylib, symbol));
        let searched = SearchedArchive(number);
        added.inspect_err(|_| self.stop_search(searched)).map(|()| searched)
    }

    /// Whether there are archives that are asked.
    pub fn searches_archives(&self) -> bool {
        !self.known.lock().archives.is_empty()
    }

    /// Asks the archive no more.
    pub fn stop_search(&self, archive: SearchedArchive) {
        let searched = self.known.lock().archives.remove(&archive.0);
        drop(searched);
    }
}

impl fmt::Debug for CommonSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommonSymbols").field("rooms", &self.known.lock().rooms).finish_non_exhaustive()
    }
}

fn add_definition(
    archive: &Arc<AddDefinition>,
    dylib: &JitDylib,
    symbol: &SymbolName,
) -> Result<(), CommonError> {
    archive(dylib, symbol).map_err(|source| CommonError::Archive { symbol: symbol.clone(), source })
}

impl Room {
    fn grow(&mut self, asked: CommonExtent) -> Result<(), CommonExtent> {
        let largest = CommonExtent {
            size_bytes: asked.size_bytes.max(self.extent.size_bytes),
            align: asked.align.max(self.extent.align),
        };
        if self.decided && largest != self.extent {
            return Err(self.extent);
        }
        self.extent = largest;
        Ok(())
    }
}

/// One variable that has only tentative definitions.
struct CommonUnit {
    symbol: SymbolName,
    flags: SymbolFlags,
    room: Arc<Mutex<Room>>,
    layer: Arc<dyn ObjectLayer>,
    registered: Registered,
}

impl MaterializationUnit for CommonUnit {
    fn name(&self) -> &str {
        &self.registered.unit
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(SymbolFlagsMap::from_iter([(self.symbol.clone(), self.flags)]))
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // Without the number of the unit: an image of the object has the same bytes each time.
        let name = format!("<common `{}`>", self.symbol);
        if responsibility.add_resource(Box::new(self.registered)).is_err() {
            return; // The variable was removed, and nobody waits for it.
        }
        let extent = {
            let mut room = self.room.lock();
            room.decided = true;
            room.extent
        };
        let object = object_with_common(self.layer.architecture(), self.symbol.as_str(), extent, self.flags);
        self.layer.emit(responsibility, ObjectBuffer::new(name, object));
    }

    fn discard(&mut self, _dylib: &JitDylib, _symbol: &SymbolName) {
        // A real definition won, and the dylib drops the unit, which has no other symbol.
    }
}

/// An ELF object whose symbol table holds one tentative definition:
///
/// ```text
/// 0      64            112          112 + strings    aligned to 8
/// | head | two symbols | strings    | padding        | three section headers |
/// ```
fn object_with_common(arch: Architecture, name: &str, extent: CommonExtent, flags: SymbolFlags) -> Vec<u8> {
    const HEADER: usize = 64;
    const SYMBOL: usize = 24;
    const SECTION: usize = 64;
    let strings = [b"\0.symtab\0.strtab\0", name.as_bytes(), b"\0"].concat();
    let (symtab_name, strtab_name, symbol_name) = (1_u32, 9_u32, 17_u32);
    let strings_at = HEADER + 2 * SYMBOL;
    let sections_at = (strings_at + strings.len()).next_multiple_of(8);
    let mut object = Vec::with_capacity(sections_at + 3 * SECTION);

    let machine = arch.machine().0.into();
    object.extend_from_slice(b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut object, &[(1, 2), (machine, 2), (1, 4), (0, 8), (0, 8), (sections_at as u64, 8), (0, 4)]);
    put(&mut object, &[(HEADER as u64, 2), (0, 2), (0, 2), (SECTION as u64, 2), (3, 2), (2, 2)]);

    object.resize(HEADER + SYMBOL, 0);
    let (global_object, global_thread_local, hidden, common) = (0x11, 0x16, 2, 0xFFF2);
    let kind = if flags.contains(SymbolFlags::THREAD_LOCAL) { global_thread_local } else { global_object };
    let visibility = if flags.contains(SymbolFlags::EXPORTED) { 0 } else { hidden };
    put(&mut object, &[(symbol_name.into(), 4), (kind, 1), (visibility, 1), (common, 2)]);
    put(&mut object, &[(extent.align.max(1), 8), (extent.size_bytes, 8)]);
    object.extend_from_slice(&strings);
    object.resize(sections_at + SECTION, 0);

    // Name, type, flags, address, offset, size, link, info, alignment, entry size.
    let (symbol_table, string_table) = (2, 3);
    put(&mut object, &[(symtab_name.into(), 4), (symbol_table, 4), (0, 8), (0, 8), (HEADER as u64, 8)]);
    put(&mut object, &[(2 * SYMBOL as u64, 8), (2, 4), (1, 4), (8, 8), (SYMBOL as u64, 8)]);
    put(&mut object, &[(strtab_name.into(), 4), (string_table, 4), (0, 8), (0, 8), (strings_at as u64, 8)]);
    put(&mut object, &[(strings.len() as u64, 8), (0, 4), (0, 4), (1, 8), (0, 8)]);
    object
}

/// Appends numbers, each in so many little-endian bytes.
fn put(object: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for (number, size_bytes) in numbers {
        object.extend_from_slice(&number.to_le_bytes()[..*size_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectInterface;

    #[test]
    fn the_object_made_for_a_variable_defines_it_tentatively() {
        let flags_and_names = [
            (SymbolFlags::EXPORTED, "x"),
            (SymbolFlags::empty(), "a_name_of_another_length"),
            (SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL, "of_a_thread"),
        ];
        for (flags, name) in flags_and_names {
            let extent = CommonExtent { size_bytes: 4000, align: 64 };
            let object =
                ObjectBuffer::new("common", object_with_common(Architecture::HOST, name, extent, flags));
            let interface = ObjectInterface::read(&object).expect("an object");
            assert_eq!(interface.defined.len(), 1);
            let symbol = interface.defined[0];
            assert_eq!((symbol.name, symbol.common), (name, Some(extent)));
            assert_eq!(symbol.flags, SymbolFlags::COMMON | flags);
        }
    }

    #[test]
    fn room_grows_until_it_is_decided() {
        let extent = |size_bytes, align| CommonExtent { size_bytes, align };
        let mut room = Room { extent: extent(4, 8), decided: false };
        assert_eq!(room.grow(extent(16, 4)), Ok(()));
        assert_eq!(room.extent, extent(16, 8));
        room.decided = true;
        assert_eq!(room.grow(extent(16, 8)), Ok(()));
        assert_eq!(room.grow(extent(1, 1)), Ok(()));
        assert_eq!(room.grow(extent(17, 1)), Err(extent(16, 8)));
        assert_eq!(room.grow(extent(1, 16)), Err(extent(16, 8)));
    }
}
