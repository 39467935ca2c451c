//! A program that has the process for itself, and the libraries loaded for it: whether the program's definitions or the libraries' count.
//!
//! Natively the dynamic linker has the program first, and binds what a library refers to by a name to the program's definition of
//! that name. Here the libraries are there first. So each is opened without running a line of it, the program is linked, and
//! then its definitions go into the libraries' slots:
//!
//! ```text
//!   load: stand-in + library ──▶ link the program ──▶ bind: slots, stand-ins ──▶ constructors of libraries ──▶ the program's
//! ```
//!
//! A library that was in the process before has run already, with its own functions, and the engine may call it. In it functions and
//! variables of C are bound to the program's. Exempt are functions that the compiler calls through it, if they are compiled when they are
//! called.
//!
//! Thread-local variables of the program cannot be bound: a library that needs one is refused.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_void};
use std::ops::Range;
use std::path::Path;
use std::ptr;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::library::{Library, LoadLibraryError, last_error, open};
use super::overrides::told_to_libraries;
use super::stand_in::{StandIn, base_of};
use super::{ProcessSymbols, is_allocation_function};
use crate::arch::SlotKind;
use crate::executor::ArrayFunction;
use crate::runtime::loaded::{ImportSlot, Object, PutOff, for_each_object};
use crate::runtime::unwind;

/// Libraries that were loaded for the program.
#[derive(Debug, Default)]
pub(super) struct ForProgram {
    state: Mutex<OpenedLibraries>,
}

#[derive(Debug, Default)]
struct OpenedLibraries {
    stand_ins: Vec<StandIn>,
    /// The libraries that were loaded for the program, by the offsets that are added to their addresses.
    bases: Vec<u64>,
    /// Those that have not begun, each behind the ones it needs.
    waiting: Vec<WaitingLibrary>,
}

/// A library whose constructors wait.
#[derive(Debug)]
struct WaitingLibrary {
    base: u64,
    range: Range<u64>,
    constructors: Vec<u64>,
    /// Has its destructors run at the end of the process.
    destructors: PutOff,
}

/// The names by which loaded libraries refer to other objects. The program may define some of them.
#[derive(Debug, Default)]
pub struct LibraryReferences {
    /// Names without a definition in any library that was there when they were needed.
    pub required: HashSet<Box<str>>,
    /// All others.
    pub optional: HashSet<Box<str>>,
}

impl ForProgram {
    /// Loads a library, whose constructors wait.
    pub(super) fn load(&self, path: &Path) -> Result<Library, LoadLibraryError> {
        let if_loaded = libc::RTLD_LAZY | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD;
        Library::load_by(path, |name| {
            if let Some(handle) = open(name, if_loaded) {
                return Ok(handle);
            }
            let (stand_in, mut new) = open_for_program(name)?;
            let handle = open(name, if_loaded).ok_or_else(last_error)?;
            refuse_thread_locals(&stand_in, &new)?;
            let mut order = Vec::new();
            put_needed_first(handle, &mut order);
            new.sort_by_key(|library| order.iter().position(|base| *base == library.base));
            let mut state = self.state.lock();
            state.bases.extend(new.iter().map(|library| library.base));
            state.waiting.extend(new);
            state.stand_ins.push(stand_in);
            Ok(handle)
        })
    }

    /// The libraries that were loaded for the program, by the offsets that are added to their addresses.
    pub(super) fn bases(&self) -> Vec<u64> {
        self.state.lock().bases.clone()
    }

    /// Whether `address` lies in a library of which nothing has run.
    pub(super) fn has_not_begun(&self, address: u64) -> bool {
        self.state.lock().waiting.iter().any(|library| library.range.contains(&address))
    }
}

impl ProcessSymbols {
    /// The names that loaded libraries may use of the program. Empty if the process is not a program's.
    pub fn references_to_program(&self) -> LibraryReferences {
        let mut references = LibraryReferences::default();
        let Some(program) = &self.program else { return references };
        let bases = {
            let state = program.state.lock();
            let required = state.stand_ins.iter().flat_map(StandIn::names);
            references.required.extend(required.filter_map(|name| name.to_str().ok()).map(Box::from));
            state.bases.clone()
        };
        self.for_each_reference(&bases, |_, slot| {
            let name = slot.name.to_str().unwrap_or_default();
            if !references.required.contains(name) && !references.optional.contains(name) {
                references.optional.insert(name.into());
            }
        });
        references
    }

    /// Binds what loaded libraries refer to, where `found` has a definition for the program. Constructors that have waited for it may run.
    ///
    /// # Concurrency
    /// Single aligned stores, while nothing of the program runs.
    pub fn bind_to_program(&self, found: &HashMap<Box<str>, ExecutorSymbolDef>) {
        let Some(program) = &self.program else { return };
        let find = |name: &CStr| {
            let found = found.get(name.to_str().ok()?)?;
            (!found.flags.contains(SymbolFlags::THREAD_LOCAL)).then_some(*found)
        };
        let bases = program.bases();
        if bases.is_empty() && found.is_empty() {
            return;
        }
        let loaded = Arc::clone(&self.loaded.lock());
        self.for_each_reference(&bases, |object, slot| {
            let has_run = !bases.contains(&object.base);
            let Some(found) = find(slot.name) else {
                let of_libraries = || loaded.scope.value_for(&bases, object.base, slot);
                if !has_run && let Some(value) = of_libraries().or_else(|| told_to_libraries(slot.name)) {
                    slot.store(value);
                }
                return;
            };
            let is_function = found.flags.contains(SymbolFlags::CALLABLE);
            let is_bound_here = || {
                let own = slot.name.to_str().ok().and_then(|name| self.lookup(name));
                own.is_some_and(|own| own.address.value() == slot.load().wrapping_sub(slot.addend))
            };
            let fits = match slot.kind {
                _ if has_run && is_compiled_in_compiler(slot.name, found.address) => false,
                SlotKind::Function => is_function,
                _ if has_run => is_function == self.is_function_at(slot) && (is_function || is_bound_here()),
                _ => true,
            };
            if fits {
                let address = found.address.value().wrapping_add(slot.addend);
                slot.store(ptr::with_exposed_provenance_mut(address as usize));
            }
        });
        for stand_in in &program.state.lock().stand_ins {
            for (index, name) in stand_in.names().iter().enumerate() {
                if let Some(found) = find(name) {
                    stand_in.set(index, found.address.value());
                }
            }
        }
    }

    /// Whether a slot that has been bound leads to code.
    fn is_function_at(&self, slot: &ImportSlot<'_>) -> bool {
        let value = slot.load().wrapping_sub(slot.addend);
        self.images.describe(value).flags.contains(SymbolFlags::CALLABLE)
    }

    /// The function `name` of a library that was loaded for the program, if the program's own would be found there natively.
    pub fn function_of_libraries(&self, name: &str) -> Option<ExecutorAddr> {
        let bases = self.program.as_ref()?.bases();
        let loaded = Arc::clone(&self.loaded.lock());
        loaded.scope.find_in(&bases, &CString::new(name).ok()?).map(ExecutorAddr::new)
    }

    /// Has `run` run the constructors of each library that was loaded for the program, in their order, each once. They run before the program's.
    ///
    /// Only a library that has come to its constructors has its destructors run at the end of the process.
    pub fn begin_libraries(&self, mut run: impl FnMut(Vec<ArrayFunction>)) {
        let Some(program) = &self.program else { return };
        let waiting = std::mem::take(&mut program.state.lock().waiting);
        for library in waiting {
            let in_order = |(index, address)| ArrayFunction {
                priority: i32::MIN,
                unit: 0,
                index,
                address: ExecutorAddr::new(address),
            };
            let constructors = (0..).zip(library.constructors).map(in_order).collect();
            library.destructors.restore();
            run(constructors);
        }
    }

    /// Shows each reference that can be bound to the program, and its library.
    fn for_each_reference(&self, bases: &[u64], mut visitor: impl FnMut(&Object, &ImportSlot<'_>)) {
        let loaded = self.loaded.lock().clone();
        let handles = loaded.named.iter().map(|library| library.handle());
        let handles = handles.chain(self.system.iter().map(Library::handle)).flatten();
        let before: HashSet<u64> = handles.filter_map(base_of).collect();
        for_each_object(|object| {
            let has_run = !bases.contains(&object.base);
            if has_run && !before.contains(&object.base) {
                return;
            }
            object.for_each_slot(|slot| {
                // For C++, `instances.rs` has decided which definitions are shared. Functions that allocate have a mechanism of their own: the
                // executable's forwarders, which hold for the engine's own calls too, and guard memory that was allocated before.
                let is_wanted = slot.kind != SlotKind::ThreadLocal
                    && !slot.name.to_str().is_ok_and(is_allocation_function)
                    && (!has_run || !slot.name.to_bytes().starts_with(b"_Z"));
                if is_wanted {
                    visitor(object, slot);
                }
            });
        });
    }
}

/// Whether `name` is a function that the compiler calls through libraries, and that would be compiled then: by the compiler that waits for it.
fn is_compiled_in_compiler(name: &CStr, address: ExecutorAddr) -> bool {
    const CALLED: [&[u8]; 9] =
        [b"memcpy", b"memmove", b"memset", b"memcmp", b"memchr", b"bcmp", b"strlen", b"strcmp", b"strncmp"];
    CALLED.contains(&name.to_bytes()) && unwind::functions::stubs_at(address).is_some()
}

/// Opens a library and the libraries that it needs, even if it refers to symbols of the program. No constructor has run then.
fn open_for_program(name: &CStr) -> Result<(StandIn, Vec<WaitingLibrary>), String> {
    let mut missing: Vec<CString> = Vec::new();
    loop {
        let mut opening = Opening::default();
        for_each_object(|object| opening.before.push(object.base));
        match StandIn::open(missing.clone(), name, put_off_constructors, (&raw mut opening).cast()) {
            Ok(stand_in) => {
                opening.new.retain(|library| library.base != stand_in.base());
                return Ok((stand_in, opening.new));
            }
            Err(message) => match undefined_symbol(&message) {
                Some(symbol) if !missing.contains(&symbol) => missing.push(symbol),
                _ => return Err(message),
            },
        }
    }
}

/// Which objects were there before one is opened, and which are new.
#[derive(Default)]
struct Opening {
    before: Vec<u64>,
    new: Vec<WaitingLibrary>,
}

/// Called when all new objects are relocated, and before their constructors. `data` is an [`Opening`].
extern "C" fn put_off_constructors(data: *mut c_void) {
    extern "C" fn nothing() {}
    // SAFETY: `open_for_program` passes it, and waits on this thread.
    let opening = unsafe { &mut *data.cast::<Opening>() };
    for_each_object(|object| {
        if opening.before.contains(&object.base) {
            return;
        }
        let (base, range) = (object.base, object.range.clone());
        // SAFETY: this is the first of all initializers, on the thread that has the dynamic linker.
        let (constructors, destructors) = match unsafe { object.put_off(nothing) } {
            Some(destructors) => (object.constructors(), destructors),
            None => (Vec::new(), PutOff::default()),
        };
        opening.new.push(WaitingLibrary { base, range, constructors, destructors });
    });
}

/// The undefined symbol's name in a message of the dynamic linker.
pub(super) fn undefined_symbol(message: &str) -> Option<CString> {
    let (_, name) = message.split_once("undefined symbol: ")?;
    let name = name.split([',', ' ', '\n']).next()?;
    CString::new(name).ok()
}

/// A library's thread-local variable belongs to a module, and the program's modules are not the dynamic linker's.
fn refuse_thread_locals(stand_in: &StandIn, new: &[WaitingLibrary]) -> Result<(), String> {
    let mut refused = None;
    for_each_object(|object| {
        if new.iter().any(|library| library.base == object.base) {
            object.for_each_slot(|slot| {
                if slot.kind == SlotKind::ThreadLocal
                    && stand_in.names().iter().any(|name| **name == *slot.name)
                {
                    refused = Some(slot.name.to_string_lossy().into_owned());
                }
            });
        }
    });
    refused.map_or(Ok(()), |name| {
        Err(format!("it needs the thread-local variable `{name}` of the program, and libraries can use their own alone"))
    })
}

/// Puts the library of `handle` into `order`, behind all that it needs.
fn put_needed_first(handle: usize, order: &mut Vec<u64>) {
    let mut seen = Vec::new();
    visit(handle, &mut seen, order);

    fn visit(handle: usize, seen: &mut Vec<u64>, order: &mut Vec<u64>) {
        let Some(base) = base_of(handle).filter(|base| !seen.contains(base)) else { return };
        seen.push(base);
        let mut needed = Vec::new();
        for_each_object(|object| {
            if object.base == base {
                needed = object.needed();
            }
        });
        for name in needed {
            if let Some(handle) = open(&name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) {
                visit(handle, seen, order);
            }
        }
        order.push(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dynamic_linker_names_what_is_missing() {
        let named = |message| undefined_symbol(message).map(|name| name.to_string_lossy().into_owned());
        assert_eq!(named("./libl.so: undefined symbol: app_data").as_deref(), Some("app_data"));
        assert_eq!(named("libx.so: undefined symbol: f, version LIB_1.0").as_deref(), Some("f"));
        assert_eq!(named("libx.so: cannot open shared object file: No such file or directory"), None);
    }
}
