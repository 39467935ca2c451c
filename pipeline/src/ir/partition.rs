//! [`Partition`]: whether a large module is compiled in parts, on several threads.
//!
//! ```text
//!  early:  normalize ─ divide ─ write bitcode ─┬─ part 0: read, optimize, codegen ─┬─ join
//!                                              └─ part 1: read, optimize, codegen ─┘
//!  late:   normalize ─ simplify, inline ─ divide ─ write bitcode ─┬─ part 0: read, rest, codegen ─┬─ join
//!                                                                 └─ part 1: …                    ┘
//! ```
//!
//! `divide.cpp` decides which functions belong together, and `part.cpp` takes a part out. The order of parts and their bytes depend on the
//! module and the options alone, not on which thread compiles which part. The objects are joined to one buffer (`object/parts.rs`), so that
//! caches and layers below need not know; the linker makes one graph of them.
//!
//! The thread that has the module compiles parts until none is left, then waits for those that helpers have begun. A helper waits for no
//! other thread, so this ends with any dispatcher, and without one.

use std::ffi::c_void;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{ExecutionSession, Task, TaskPriority};
use uruk_recorder::{Entry, Kind};

use super::compile::{generate, run_passes};
use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::ffi::{self, MemoryBuffer, take_message};
use super::kept::Onlookers;
use super::module::{LockedModule, ThreadSafeModule, enter};
use super::optimize::Passes;
use super::part_cache::PartCache;
use super::source::parse_error;
use super::target::JitTargetMachineBuilder;
use crate::object::{ObjectBuffer, join_parts};

/// When modules are divided into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PartitionPolicy {
    /// Never.
    #[default]
    Whole,
    /// When functions have been simplified and inlined. Parts are of equal size, and code is as good as of the whole.
    Late,
    /// Before all passes, by a hash of names. Parts know small functions of others and nothing else of them. That is fastest, and a part
    /// that is edited leaves the others as they were.
    Early,
}

/// How modules are divided into parts, which are compiled on several threads.
///
/// # Cost
/// SQLite at O2 on two cores takes 23 s whole, 18 s with [`Late`](PartitionPolicy::Late), 13 s with [`Early`](PartitionPolicy::Early). The code is as
/// fast within 2 %; objects are larger by 1.1 and 1.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Partition {
    policy: PartitionPolicy,
    parts: u32,
    instructions_min: u64,
}

/// Modules of fewer instructions are compiled sooner than they are divided.
const INSTRUCTIONS_MIN: u64 = 20_000;

/// More parts than this take more time to read than they save.
const PARTS_MAX: u32 = 1024;

impl Partition {
    /// Modules that are large enough are divided into `parts`, at most 1024.
    pub fn new(policy: PartitionPolicy, parts: usize) -> Self {
        let parts = u32::try_from(parts).unwrap_or(PARTS_MAX).min(PARTS_MAX);
        Self { policy, parts, instructions_min: INSTRUCTIONS_MIN }
    }

    /// The same for modules of any size.
    #[must_use]
    pub fn of_all_modules(mut self) -> Self {
        self.instructions_min = 0;
        self
    }

    /// When modules are divided.
    pub fn policy(&self) -> PartitionPolicy {
        self.policy
    }

    /// Into how many parts.
    pub fn parts(&self) -> usize {
        self.parts as usize
    }

    /// From how many instructions on a module is divided.
    pub fn instructions_min(&self) -> u64 {
        self.instructions_min
    }

    /// Its part of a cache's key. Empty for modules that stay whole.
    pub(super) fn ingredients(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { policy, parts, instructions_min } = *self;
        let divides = policy != PartitionPolicy::Whole && parts > 1;
        let ingredients =
            [("divided", policy as u64), ("parts", parts.into()), ("divided from", instructions_min)];
        ingredients.into_iter().filter(move |_| divides)
    }

    /// When `module` is to be divided.
    pub(super) fn policy_for(&self, module: &LockedModule<'_>) -> PartitionPolicy {
        // SAFETY: the module is alive and held.
        let instructions = unsafe { ffi::uruk_llvm_instructions(module.raw()) };
        let is_divided = self.parts > 1 && instructions >= self.instructions_min;
        if is_divided { self.policy } else { PartitionPolicy::Whole }
    }

    /// Divides `module`, whose parts are to be compiled for `target` after `passes`; nothing if it is all of a piece.
    pub(super) fn divide(
        &self,
        module: &LockedModule<'_>,
        passes: Passes,
        target: &JitTargetMachineBuilder,
        onlookers: &Onlookers,
    ) -> Result<Option<Parts>, CompileError> {
        let phase = uruk_core::phase!("ir.divide", unit = %module.name(), parts = self.parts);
        let _inside = uruk_core::inside(phase);
        let division = Division::of(module, self)?;
        if division.part_of.is_empty() {
            return Ok(None);
        }
        let (bitcode, parts) = (module.to_bitcode()?, self.parts());
        uruk_recorder::note(|| {
            let name = uruk_recorder::write_name(module.name());
            Entry::new(Kind::Divided).named(name).with(parts as u64, 0)
        });
        // Optimization may leave nothing of a function that others could have called. Without a section of its own it would stay.
        let target = match self.policy {
            PartitionPolicy::Early => target.clone().with_sections(true, true),
            _ => target.clone(),
        };
        let objects = std::iter::repeat_with(|| None).take(parts).collect();
        let compiled = Mutex::new(CompiledParts { objects, left: parts });
        let (next, done) = (AtomicUsize::new(0), Latch::new());
        let onlookers = onlookers.clone();
        let cache = None;
        let work =
            PartsWork { division, bitcode, passes, target, parts, cache, onlookers, next, compiled, done };
        Ok(Some(Parts(Box::new(work))))
    }
}

/// Which part each value of a module is in.
#[derive(Debug, Default)]
struct Division {
    /// By the order of bitcode; empty for a module that is all of a piece.
    part_of: Vec<u32>,
    /// Functions that a part has copies of: the function's place in that order, and the part.
    imports: Vec<u32>,
}

impl Division {
    fn of(module: &LockedModule<'_>, partition: &Partition) -> Result<Self, CompileError> {
        unsafe extern "C-unwind" fn sink(
            data: *mut c_void,
            part_of: *const u32,
            values: usize,
            imports: *const u32,
            imported: usize,
        ) {
            // SAFETY: the shim hands on the pointer it got below, and two lists that live for the call.
            unsafe {
                let division = &mut *data.cast::<Division>();
                division.part_of = numbers(part_of, values).to_vec();
                division.imports = numbers(imports, imported).to_vec();
            }
        }
        let divide = || {
            let mut division = Self::default();
            let by_name = partition.policy == PartitionPolicy::Early;
            let data = (&raw mut division).cast();
            // SAFETY: the module is alive and held; `sink` takes a `Division`.
            unsafe { ffi::uruk_llvm_divide(module.raw(), partition.parts, by_name, sink, data) };
            Ok(division)
        };
        module.enter("dividing", divide, |message| CompileError::Diagnosed {
            module: module.name().clone(),
            message,
        })
    }
}

/// # Safety
/// `start` points to `count` numbers that live as long as the result is used, or `count` is 0.
unsafe fn numbers<'a>(start: *const u32, count: usize) -> &'a [u32] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's obligation.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// The parts of a module, to be compiled.
pub(super) struct Parts(Box<PartsWork>);

struct PartsWork {
    division: Division,
    /// Of the whole module, written once.
    bitcode: ObjectBuffer,
    passes: Passes,
    target: JitTargetMachineBuilder,
    parts: usize,
    cache: Option<PartCache>,
    /// Where it is written, and the passes in the names of the files.
    onlookers: Onlookers,
    /// The next part that no thread compiles yet.
    next: AtomicUsize,
    compiled: Mutex<CompiledParts>,
    /// Opened when no part is left.
    done: Latch,
}

#[derive(Debug)]
struct CompiledParts {
    objects: Vec<Option<Result<ObjectBuffer, CompileError>>>,
    /// How many are not compiled yet.
    left: usize,
}

impl Parts {
    /// Compiles all parts that `cache` does not have, with the help of idle workers of `session`.
    pub(super) fn compile(
        self,
        session: Option<&ExecutionSession>,
        cache: Option<PartCache>,
    ) -> Result<ObjectBuffer, CompileError> {
        let work = Arc::new(PartsWork { cache, ..*self.0 });
        if let Some(session) = session {
            for _ in 1..work.parts {
                let helper = work.clone();
                let run = move || helper.run();
                session.dispatch(Task::new("parts of a module", TaskPriority::Demanded, run).leaf());
            }
        }
        work.run();
        work.wait(session);
        let objects = std::mem::take(&mut work.compiled.lock().objects);
        let lost = || CompileError::Fatal {
            module: work.bitcode.name().clone(),
            stage: "compiling a part",
            message: "its thread panicked".to_owned(),
        };
        let objects = objects.into_iter().map(|object| object.unwrap_or_else(|| Err(lost())));
        Ok(join_parts(work.bitcode.name(), &objects.collect::<Result<Vec<_>, _>>()?))
    }
}

impl PartsWork {
    /// Compiles parts until none is left.
    fn run(&self) {
        loop {
            // Relaxed: each number is given out once, and its part was there before.
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            let counted = CountedPart(self);
            let object = self.compile(part);
            self.compiled.lock().objects[part] = Some(object);
            drop(counted);
        }
    }

    fn wait(&self, session: Option<&ExecutionSession>) {
        let waits = || self.done.wait();
        match session {
            // Refused where a thread must not wait for other threads that may need it. Helpers that have begun need no other thread.
            Some(session) if session.blocking(waits).is_ok() => {}
            _ => self.done.wait(),
        }
    }

    fn compile(&self, part: usize) -> Result<ObjectBuffer, CompileError> {
        let context = ThreadSafeContext::new();
        // The module refers to the bitcode until it is dropped, at the end of this function.
        let module = self.read(&context, part)?;
        let module = module.lock()?;
        module.set_identifier();
        if cfg!(debug_assertions) {
            module.verify()?;
        }
        let make = || {
            let watched = self.onlookers.begin(&module, Some(part));
            run_passes(&module, &self.target, &self.passes)?;
            generate(&module, &self.target, watched)
        };
        match &self.cache {
            Some(cache) => cache.object(&module, make),
            None => make(),
        }
    }

    fn read(&self, context: &ThreadSafeContext, part: usize) -> Result<ThreadSafeModule, CompileError> {
        let phase = uruk_core::phase!("ir.part", unit = %self.bitcode.name(), part);
        let _inside = uruk_core::inside(phase);
        let (guard, name) = (context.lock(), self.bitcode.name());
        let Division { part_of, imports } = &self.division;
        let read = || {
            let mut message = std::ptr::null_mut();
            // SAFETY: the context is held; the callee takes over the buffer, whose bytes outlive the module; the lists live for the call;
            // the message is taken over at once.
            unsafe {
                let buffer = MemoryBuffer::borrowing(&self.bitcode).into_raw();
                let module = ffi::uruk_llvm_read_part(
                    guard.raw(),
                    buffer,
                    part_of.as_ptr(),
                    part_of.len(),
                    imports.as_ptr(),
                    imports.len(),
                    part as u32,
                    &raw mut message,
                );
                let message = take_message(message);
                if module.is_null() { Err(message) } else { Ok(module) }
            }
        };
        let module = enter(&guard, name, "reading a part", read)?;
        drop(guard);
        let module = module.map_err(|message| parse_error(&self.bitcode, &message))?;
        // SAFETY: the module was made in this context a moment ago, and has no other owner.
        Ok(unsafe { ThreadSafeModule::adopt(module, name.clone(), context.clone()) })
    }
}

/// Counts a part as compiled, also if that panics.
struct CountedPart<'a>(&'a PartsWork);

impl Drop for CountedPart<'_> {
    fn drop(&mut self) {
        let left = {
            let mut compiled = self.0.compiled.lock();
            compiled.left -= 1;
            compiled.left
        };
        if left == 0 {
            self.0.done.open();
        }
    }
}
