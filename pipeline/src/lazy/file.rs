//! [`FileStubs`]: a file that is compiled or linked as a whole, when one of its functions is first called.
//!
//! ```text
//!   others ─▶ stub f ──▶ body of f in FILE ◀── calls within the file, unless f may be replaced
//!                ▲                  │
//!                └── &f ────────────┘
//! ```
//!
//! Data of the file keeps its names: a reference to it has the file compiled. Functions that are local to the file have no stub.
//!
//! **Holds.** A function has one address, the stub's, for all code that takes it.

use std::collections::HashMap;
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::{
    AliasMap, AliasTarget, ExecutionSession, MaterializationInterface, MaterializationResponsibility,
    SymbolFlags, SymbolName, body_name,
};

use crate::arch::Architecture;
use crate::linking::ObjectLinkingLayer;
use crate::object::{
    ObjectBuffer, ObjectInterface, ObjectLayer, ObjectMaterializationUnit, References, default_version,
};

/// The functions of one file that others reach through stubs.
#[derive(Debug)]
pub struct FileStubs {
    file: Box<str>,
    title: Box<str>,
    functions: HashMap<Box<str>, StubFunction>,
}

#[derive(Debug)]
struct StubFunction {
    body: Box<str>,
    flags: SymbolFlags,
}

impl FileStubs {
    /// None yet, of a file with this name.
    pub fn of(file: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        let title = format!("{file}, whole (#{})", NEXT.fetch_add(1, Ordering::Relaxed)).into();
        Self { file: file.into(), title, functions: HashMap::new() }
    }

    /// The functions of an object, according to its symbol table.
    pub fn of_object(object: &ObjectBuffer, interface: &ObjectInterface<'_>) -> Self {
        let mut stubs = Self::of(object.name());
        let mut names = HashMap::new();
        for symbol in &interface.defined {
            if let Some(place) = symbol.code {
                let first = *names.entry(place).or_insert(symbol.name);
                stubs.add(symbol.name, first, symbol.flags);
            }
        }
        stubs
    }

    /// Has an object promise its functions by the names of their bodies: others refer to the stubs. Its layer must be a [`FileLayer`] of
    /// the same stubs.
    pub fn stand_before(&self, session: &ExecutionSession, object: &mut ObjectMaterializationUnit) {
        let (interface, references) = object.promises();
        self.rename_bodies(session, interface, |_, _| ());
        self.leave_out(references);
    }

    /// Adds a function. Those of one `body` are one function, and have one address; it is the name of one of them.
    pub fn add(&mut self, name: &str, body: &str, flags: SymbolFlags) {
        let body = body_name(body, &self.title).into();
        self.functions.insert(name.into(), StubFunction { body, flags: flags | SymbolFlags::CALLABLE });
    }

    /// Whether a function of this name has one.
    #[cfg(feature = "llvm")]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The name of a function's body.
    pub fn body(&self, name: &str) -> Option<&str> {
        Some(&*self.functions.get(name)?.body)
    }

    /// The functions, each with the name of its body.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.functions.iter().map(|(name, function)| (&**name, &*function.body))
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn aliases(&self, session: &ExecutionSession) -> AliasMap {
        let functions = self.functions.iter().map(|(name, function)| {
            let source = session.intern(&function.body);
            (session.intern(name), AliasTarget { source, flags: function.flags })
        });
        functions.collect()
    }

    /// Leaves functions out of the file's definitions for others: a reference to a function needs its stub alone.
    pub(crate) fn leave_out(&self, references: &mut References) {
        let defined = references.defined.iter().filter(|name| !self.functions.contains_key(name.as_str()));
        references.defined = defined.cloned().collect();
    }

    /// Has `interface` promise bodies. Tells which body stands for which function.
    pub(crate) fn rename_bodies(
        &self,
        session: &ExecutionSession,
        interface: &mut MaterializationInterface,
        mut renamed: impl FnMut(&SymbolName, SymbolName),
    ) {
        for (name, function) in &self.functions {
            let (name, body) = (session.intern(name), session.intern(&function.body));
            if interface.symbols.remove(&name).is_some() {
                interface.symbols.insert(body.clone(), SymbolFlags::CALLABLE);
                renamed(&body, name);
            }
        }
    }

    /// The name of a function's body in the object, and whether another definition may have taken its place.
    fn body_of(&self, name: &str) -> Option<(&str, bool)> {
        let function = self.functions.get(default_version(name))?;
        Some((&function.body, function.flags.contains(SymbolFlags::WEAK)))
    }
}

/// Links objects whose functions are behind stubs.
pub struct FileLayer {
    layer: ObjectLinkingLayer,
    stubs: Arc<FileStubs>,
}

impl FileLayer {
    /// Links with `layer` the object of the file that has these `stubs`.
    pub fn new(layer: ObjectLinkingLayer, stubs: Arc<FileStubs>) -> Self {
        Self { layer, stubs }
    }
}

impl ObjectLayer for FileLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        self.layer.emit_changed(responsibility, &object, None, |graph| {
            graph.put_behind_stubs(&|name| self.stubs.body_of(name))
        });
    }

    fn architecture(&self) -> Architecture {
        self.layer.architecture()
    }

    fn announce(&self, object: &ObjectBuffer) {
        self.layer.announce(object);
    }
}

impl fmt::Debug for FileLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileLayer").field(&self.stubs.title).finish()
    }
}
