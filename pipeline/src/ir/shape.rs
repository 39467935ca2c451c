//! The shape of a module: all of it but addresses of the process and the names of its definitions. A cache knows a module by its shape.
//!
//! A host that compiles queries writes addresses of its own structures into each module, and numbers its functions. So no module comes twice,
//! although the code of most is the same but for these numbers and names.
//!
//! ```text
//!  add:   module ─read─▶ form, names, addresses ─hash─▶ K ─get─▶ interface, object        (hit: the module is not copied)
//!                                                           └──▶ missing: module ─copy─▶ with the shape ─compile, put─▶ object
//!  link:  object: d0, d1, …; p0, p1, … ─LinkerInfo─▶ the module's names, the module's addresses
//! ```
//!
//! | in the module | in its shape |
//! |---|---|
//! | a definition | `uruk.dN`, numbered in the order in which those that others see lead to them |
//! | a global that no such definition leads to | left out |
//! | an `i64`, or an `inttoptr` of one, from 0x5500'0000'0000 up to 2^47, as a value in a function, also in expressions, vectors and phis | loaded from a table of the module, which the linker fills |
//! | the same as the initializer of a local variable | `uruk.pN`; passes are told that the value is not known |
//! | addresses at most 64 bytes apart | found from the lowest of them, as fields of one structure are |
//! | an alignment of a plain access | that of the type, if that is less; 8 where memory is copied or filled |
//! | names of structures, of values, of the file, of the compiler | left out |
//! | everything else: other numbers, cases of a switch, indices, immediate arguments, operands of assembly | as it is |
//!
//! # Why it is sound
//!
//! *Any number may be replaced.* A load of a number gives the number. Passes take the table's contents for unknown: it is `externally_initialized`,
//! so they neither read the initializer nor take two entries for two objects. Two addresses may be one object's, or overlap. Numbers that LLVM wants
//! to know stay where they are (`mayBeLoaded` in `shape.cpp`). Whether the number is an address does not matter.
//!
//! *One key, one meaning.* The form tells everything of the module that the table above leaves in, in an encoding that can be read in one way
//! only. Each kind of instruction, constant, attribute and metadata that the reader knows has its case. With any other the module has no shape, and
//! is added as it is: with aliases, assembly, COMDATs, sections, constructors, debug information, other names of addresses of blocks. So is one
//! that defines a function of the C library: passes know these by their names.
//!
//! *An intrinsic is LLVM's.* The attributes of its declaration do not count: each module that is compiled was read from bitcode, and got those that
//! LLVM gives the intrinsic. Passes infer more for it (`mustprogress`), and reading takes these away.
//!
//! *One form, one table.* On a miss the copy is read by the same reader, and its form must be the same, byte by byte. So the numbers in the object
//! that is stored are those that a hit finds.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use inkwell::module::Module;
use llvm_sys::prelude::LLVMModuleRef;
use uruk_core::{ExecutionSession, ExecutorAddr};

use super::cached::{IrCache, object_key};
use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::{self, FatalError, bytes, enter_llvm, take_message};
use super::layer::IrCompileLayer;
use super::linker_info::LinkerInfo;
use super::module::{LockedModule, ThreadSafeModule};
use super::pending::Source;
use super::symbols::ModuleInterface;
use super::unit::IrMaterializationUnit;
use crate::cache::{Key, KeyBuilder, Miss, ObjectCache as _};
use crate::linking::ObjectLinkingLayer;
use crate::object::ObjectBuffer;

/// A module's form, and what a shape leaves out of it.
#[derive(Debug, Default)]
pub(super) struct ModuleShape {
    /// The form, which the key is made of.
    pub(super) form: Vec<u8>,
    /// The names of definitions that others see, with the numbers that these have in the shape.
    definitions: Vec<(Box<str>, usize)>,
    /// The addresses of the table.
    addresses: Vec<u64>,
    /// Whether a name is no text.
    is_odd: bool,
}

impl ModuleShape {
    /// Reads the shape of `module`, which stays as it is.
    ///
    /// # Errors
    /// [`Miss::NoShape`] with the part of the module that the reader does not know.
    fn read(module: &Module<'_>) -> Result<Self, Miss> {
        // SAFETY: all three are called with the pointer to a `ModuleShape` that is passed below, which has no other user meanwhile.
        unsafe extern "C-unwind" fn form(data: *mut c_void, start: *const c_char, size: usize) {
            // SAFETY: see above; the bytes live for the call.
            unsafe { (*data.cast::<ModuleShape>()).form = bytes(start, size).to_vec() }
        }
        unsafe extern "C-unwind" fn defined(
            data: *mut c_void,
            name: *const c_char,
            size: usize,
            number: usize,
        ) {
            // SAFETY: see above; the bytes live for the call.
            let (shape, name) = unsafe { (&mut *data.cast::<ModuleShape>(), bytes(name, size)) };
            match std::str::from_utf8(name) {
                Ok(name) => shape.definitions.push((name.into(), number)),
                Err(_) => shape.is_odd = true,
            }
        }
        unsafe extern "C-unwind" fn address(data: *mut c_void, value: u64) {
            // SAFETY: see above.
            unsafe { (*data.cast::<ModuleShape>()).addresses.push(value) }
        }
        let mut shape = Self::default();
        let data = (&raw mut shape).cast();
        // SAFETY: the module is alive, and no other thread changes it, as inkwell's type says; the sinks are those for `data`.
        // The message is ours, and taken once.
        let read = || unsafe {
            take_reason(ffi::uruk_llvm_read_shape(module.as_mut_ptr(), form, defined, address, data))
        };
        match enter_llvm(read) {
            Ok(Err(why)) | Err(FatalError(why)) => Err(Miss::NoShape { why }),
            Ok(Ok(())) if shape.is_odd => Err(Miss::NoShape { why: "a name that is not UTF-8".to_owned() }),
            Ok(Ok(())) => Ok(shape),
        }
    }

    /// The meaning of the shape's names: those of the module.
    fn meanings(&self) -> LinkerInfo {
        let mut info = LinkerInfo::new();
        for (name, number) in &self.definitions {
            info = info.define(&format!("uruk.d{number}"), name);
        }
        for (number, address) in self.addresses.iter().enumerate() {
            info = info.refer_to_address(&format!("uruk.p{number}"), ExecutorAddr::new(*address));
        }
        info
    }
}

/// Takes over why there is no shape, if there is none.
///
/// # Safety
/// As of [`take_message`].
unsafe fn take_reason(message: *mut c_char) -> Result<(), String> {
    // SAFETY: the caller's obligation.
    if message.is_null() { Ok(()) } else { Err(unsafe { take_message(message) }) }
}

impl LockedModule<'_> {
    /// Gives a verified module the shape that its original was read with, or says why it does not read the same.
    fn take_shape(&self, shape: &ModuleShape) -> Result<Result<(), Miss>, CompileError> {
        let ModuleShape { form, .. } = shape;
        // SAFETY: the module is alive, held and verified; the form lives for the call; the message is ours, and taken once.
        let take = || unsafe {
            let message = ffi::uruk_llvm_take_shape(self.raw(), form.as_ptr().cast(), form.len());
            Ok(take_reason(message).map_err(|why| Miss::NoShape { why }))
        };
        self.enter("taking the shape", take, |message| CompileError::Diagnosed {
            module: self.name().clone(),
            message,
        })
    }
}

impl IrCache {
    /// The key of the interface of modules of one form.
    fn shape_key(&self, form: &[u8]) -> Key {
        let mut key = KeyBuilder::new("shape");
        let machine = self.source_key(&ObjectBuffer::new("shape", Vec::new()));
        key.bytes("machine", machine.as_bytes()).bytes("form", form);
        key.finish()
    }

    /// The interface of a shape, and the object that `compiler` made of it, as far as they are there. An object that is not there is counted when
    /// it is wanted.
    ///
    /// # Errors
    /// [`CompileError::NotCached`] if there has to be an interface.
    fn shaped(
        &self,
        compiler: &IrCompiler,
        key: &Key,
        name: &Arc<str>,
    ) -> Result<Option<(ModuleInterface, Option<ObjectBuffer>)>, CompileError> {
        let Some(interface) = self.interface(key, name)? else { return Ok(None) };
        let mut kept: Vec<&str> = interface.kept_symbols().collect();
        let key = object_key(compiler, true, *key, &mut kept, &mut []);
        let object = self.store().get(&key).ok();
        if object.is_some() {
            self.tell_of_object(name, Some(key), Ok(()));
        }
        // It may have been made under another name, and errors of the linker say whose object it is.
        Ok(Some((interface, object.map(|object| object.renamed(name.clone())))))
    }
}

/// Copies a module of any context into one of its own, and verifies the copy.
fn copy(module: &Module<'_>, name: &Arc<str>) -> Result<ThreadSafeModule, CompileError> {
    let raw: LLVMModuleRef = module.as_mut_ptr();
    // SAFETY: the module is alive, and no other thread uses its context, as inkwell's type says.
    let copy = unsafe { ThreadSafeModule::copy_canonical(raw, name) }?;
    copy.verify()?;
    Ok(copy)
}

impl IrMaterializationUnit {
    /// Promises the symbols of a module that the layer's cache knows by its shape: addresses of the process in it and the names of its
    /// definitions do not count, so the same query at other addresses is compiled once. `objects` links it.
    ///
    /// The module stays its owner's, and is not used after this returns. Without a cache, or if the module has no shape, it is compiled as it is;
    /// the [module's documentation](crate::ir) says which have one. The result is the same in each case. Addresses in the code must stay valid as
    /// long as the code is used, as without shapes.
    ///
    /// # Errors
    /// [`CompileError::Verify`], unless it is a hit: then the module's form is that of a module that was verified.
    /// [`CompileError::NotCached`] in [`CacheMode::RequireHit`](crate::cache::CacheMode::RequireHit), of the interface here, and of the
    /// object when it is wanted.
    ///
    /// # Concurrency
    /// Uses the module's context on the calling thread alone. Waits for no other thread.
    ///
    /// # Cost
    /// A hit reads the module once, and looks up two entries. A miss copies it by way of bitcode.
    pub fn from_shape(
        session: &ExecutionSession,
        layer: &IrCompileLayer,
        objects: ObjectLinkingLayer,
        name: impl Into<Arc<str>>,
        module: &Module<'_>,
    ) -> Result<Self, CompileError> {
        let (name, target) = (name.into(), layer.compiler().target());
        let Some(cache) = layer.ir_cache() else { return Self::unshaped(session, layer, module, &name) };
        let shape = match ModuleShape::read(module) {
            Ok(shape) => shape,
            Err(why) => {
                cache.tell_of_no_shape(&name, why);
                return Self::unshaped(session, layer, module, &name);
            }
        };
        let key = cache.shape_key(&shape.form);
        let (interface, source) = match cache.shaped(layer.compiler(), &key, &name)? {
            Some((interface, Some(object))) => (interface, Source::Compiled(object)),
            known => {
                let copy = copy(module, &name)?;
                let taken = copy.lock()?.take_shape(&shape)?;
                if let Err(why) = taken {
                    cache.tell_of_no_shape(&name, why);
                    return Self::unshaped(session, layer, module, &name);
                }
                let interface = match known {
                    Some((interface, _)) => interface,
                    None => {
                        let interface = ModuleInterface::of_module(&copy, target)?;
                        cache.put_interface(&key, &name, &interface);
                        interface
                    }
                };
                (interface, Source::Module(copy))
            }
        };
        let info = Arc::new(shape.meanings());
        let layer = Arc::new(layer.with_meanings(objects, info.clone()));
        Ok(Self::known(session, layer, &interface, source, key).with_meanings(session, &info))
    }

    /// The same for a module that has no shape, or none that a cache could be asked for.
    fn unshaped(
        session: &ExecutionSession,
        layer: &IrCompileLayer,
        module: &Module<'_>,
        name: &Arc<str>,
    ) -> Result<Self, CompileError> {
        let (copy, target) = (copy(module, name)?, layer.compiler().target());
        let layer = Arc::new(layer.clone());
        match layer.ir_cache() {
            Some(_) => Self::from_source(session, layer, target, copy.to_bitcode()?),
            None => Self::from_module(session, layer, target, copy),
        }
    }
}

#[cfg(test)]
mod tests;
