//! The order in which the dynamic linker searches the libraries that a native program was linked with.
//!
//! First come the libraries that the program names, in order, then those that these need, and so on: breadth first. In this process the
//! libraries of the engine come before them, so their names would win: the exceptions of libc++ would meet the runtime of
//! libstdc++. So the slots of a library that comes are bound anew in this order, before its constructors run.
//!
//! | slot's name is defined first | it gets |
//! |---|---|
//! | in a library that came for the program | the definition there |
//! | in a library of the engine, which the program's need too, or nowhere | what the dynamic linker found |
//!
//! Thread-local variables stay with the dynamic linker. Functions that allocate are those of the process, because memory passes between
//! libraries. Operators of C++ are the library's that has come, unless the executable replaces them: their exceptions are of its runtime. In a
//! program's process `allocation` has the same rule for all of these functions.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr;

use super::library::{Library, LibraryName, LoadLibraryError, find, last_error, open};
use super::stand_in::{CANNOT_STAND_IN, StandIn, base_of};
use super::{copies, is_allocation_function};
use crate::arch::SlotKind;
use crate::runtime::allocation;
use crate::runtime::loaded::{ImportSlot, Object, for_each_object};

/// Libraries in the order in which they are searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    members: Vec<ScopeMember>,
}

#[derive(Clone, Debug)]
struct ScopeMember {
    handle: usize,
    object: Object,
}

impl Scope {
    /// The scope of a program that names the libraries of `roots`, which are never closed.
    pub(super) fn of(roots: impl IntoIterator<Item = usize>) -> Self {
        let mut objects = Vec::new();
        for_each_object(|object| objects.push(object.clone()));
        let mut scope = Self::default();
        roots.into_iter().for_each(|handle| scope.add(handle, &objects));
        let mut next = 0;
        while let Some(member) = scope.members.get(next) {
            let of_loaded = |name: CString| open(&name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            let needed: Vec<_> = member.object.needed().into_iter().filter_map(of_loaded).collect();
            needed.into_iter().for_each(|handle| scope.add(handle, &objects));
            next += 1;
        }
        scope
    }

    fn add(&mut self, handle: usize, objects: &[Object]) {
        let Some(base) = base_of(handle) else { return };
        let is_known = self.members.iter().any(|member| member.object.base == base);
        if let Some(object) = objects.iter().find(|object| object.base == base && !is_known) {
            self.members.push(ScopeMember { handle, object: object.clone() });
        }
    }

    /// The address of `name`.
    ///
    /// # Cost
    /// A hash lookup in each library on the way.
    pub(super) fn find(&self, name: &LibraryName) -> Option<u64> {
        let defining = self.members.iter().filter(|member| member.object.defines(name.symbol()));
        defining.map(|member| member.handle).find_map(|handle| find(at(handle), name))
    }

    /// The address of `name`, if a library defines it first that is one of `bases`.
    pub(super) fn find_in(&self, bases: &[u64], name: &CStr) -> Option<u64> {
        let first = self.first(name).filter(|member| bases.contains(&member.object.base))?;
        find(at(first.handle), &LibraryName::of_default(name))
    }

    /// Whether `address` lies in one of `bases`.
    pub(super) fn lies_in(&self, bases: &[u64], address: u64) -> bool {
        let members = self.members.iter().filter(|member| bases.contains(&member.object.base));
        members.map(|member| &member.object.range).any(|range| range.contains(&address))
    }

    /// The value that `slot` of the library at `own` gets of the libraries of `bases`. `None` if it stays as it is.
    pub(super) fn value_for(&self, bases: &[u64], own: u64, slot: &ImportSlot<'_>) -> Option<*mut c_void> {
        let first = self.first(slot.name).filter(|member| bases.contains(&member.object.base))?;
        // A function's slot that is not bound yet leads into its own library.
        let may_be_unbound = slot.kind == SlotKind::Function && first.object.base == own;
        if first.object.range.contains(&slot.load()) && !may_be_unbound {
            return None;
        }
        let address = copies::now_at(find(at(first.handle), &LibraryName::of_default(slot.name))?);
        Some(ptr::with_exposed_provenance_mut(address.wrapping_add(slot.addend) as usize))
    }

    /// Binds the slots of the libraries of `bases`, which are never unloaded.
    fn bind(&self, bases: &[u64]) {
        let mut objects = Vec::new();
        for_each_object(|object| objects.extend(bases.contains(&object.base).then(|| object.clone())));
        for object in objects {
            object.for_each_slot(|slot| {
                if slot.kind != SlotKind::ThreadLocal
                    && !is_of_process(slot.name)
                    && let Some(value) = self.value_for(bases, object.base, slot)
                {
                    slot.store(value);
                }
            });
        }
    }

    fn first(&self, name: &CStr) -> Option<&ScopeMember> {
        self.members.iter().find(|member| member.object.defines(name))
    }
}

/// Whether `name` means the process's own function, in a process that is not the program's.
pub(super) fn is_of_process(name: &CStr) -> bool {
    if !name.to_str().is_ok_and(is_allocation_function) {
        return false;
    }
    let (mut is_first, mut is_executables) = (true, false);
    for_each_object(|object| {
        is_executables |= is_first && object.defines(name);
        is_first = false;
    });
    let is_operator = name.to_bytes().starts_with(b"_Z");
    !is_operator || is_executables && !allocation::has_forwarders()
}

/// Loads a library for linked code, behind those of `roots`, of which linked code has brought `bases`. The libraries that come with it are
/// added to `bases`.
pub(super) fn load(
    path: &Path,
    roots: Vec<usize>,
    bases: &mut Vec<u64>,
) -> Result<Library, LoadLibraryError> {
    Library::load_by(path, |name| {
        let flags = libc::RTLD_LAZY | libc::RTLD_GLOBAL;
        if let Some(handle) = open(name, flags | libc::RTLD_NOLOAD) {
            return Ok(handle);
        }
        let mut before = Vec::new();
        for_each_object(|object| before.push(object.base));
        let mut coming = Coming { name, roots, before, bases };
        match StandIn::open(Vec::new(), name, bind_what_comes, (&raw mut coming).cast()) {
            Err(message) if message.starts_with(CANNOT_STAND_IN) => {}
            opened => drop(opened?),
        }
        open(name, flags).ok_or_else(last_error)
    })
}

/// A library that is about to run, and what was there before.
struct Coming<'a> {
    name: &'a CStr,
    roots: Vec<usize>,
    before: Vec<u64>,
    bases: &'a mut Vec<u64>,
}

/// Called when all new objects are relocated, and before their constructors. `data` is a [`Coming`].
extern "C" fn bind_what_comes(data: *mut c_void) {
    // SAFETY: `load` passes it, and waits on this thread.
    let coming = unsafe { &mut *data.cast::<Coming<'_>>() };
    for_each_object(|object| {
        let is_new = !coming.before.contains(&object.base);
        coming.bases.extend(is_new.then_some(object.base));
    });
    let handle = open(coming.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
    Scope::of(coming.roots.iter().copied().chain(handle)).bind(coming.bases);
}

fn at(handle: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(handle)
}
