//! [`LinkerInfo`]: what the names of a module mean. The names are unique in the module alone, and the linker learns their meanings.
//!
//! ```text
//!   module: define f, call g, load table ─compile, or cache─▶ object ─parse─▶ graph: f, g, table
//!                                                                              │ LinkerInfo
//!                                                                              ▼
//!                                                 link: f is `f#7`, g is the code of an instance, table is at an address
//! ```
//!
//! A compiler that gave each compile names of its own would never find anything in its cache again. Nothing said here reaches the compiler or
//! a cache's key.
//!
//! Source: Julia, the linker information that its JIT keeps beside each module (`src/jitlayers.cpp`).

use std::collections::HashMap;
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{CodeInstance, CodeInstanceState, ExecutorAddr, MaterializationResponsibility};

use crate::invoke::{InvokeApi, SpecializedSignature, TrampolineCode, TrampolineError};
use crate::link::{AfterCode, ObjectLinkingLayer};
use crate::object::{ObjectBuffer, ObjectLayer};

/// What a module's names mean in the program: of a translation unit, as Julia calls a module with this beside it.
///
/// Names of which nothing is said mean themselves.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::{CodeInstance, ExecutorAddr};
/// use uruk_pipeline::ir::LinkerInfo;
///
/// let callee = Arc::new(CodeInstance::<ExecutorAddr>::new());
/// static LIMIT: i64 = 42;
/// let info = LinkerInfo::new()
///     .define("f", "fib#7") // The module's `f` is found as `fib#7`.
///     .refer_to("g", "print#2")
///     .refer_to_address("limit", ExecutorAddr::from_ptr(&raw const LIMIT))
///     .refer_to_instance("h", callee, "twice"); // Its code if it has some when this is linked, otherwise `twice`, which compiles it.
/// # drop(info);
/// ```
#[derive(Clone, Default)]
#[doc(alias = "TranslationUnit")]
pub struct LinkerInfo {
    names: HashMap<Box<str>, Box<str>>,
    places: HashMap<Box<str>, Place>,
}

/// Where something is that has no symbol, or need not be looked up by it.
#[derive(Clone)]
enum Place {
    Address(ExecutorAddr),
    /// The name is that of what stands for it until it has code.
    Instance(Arc<CodeInstance<ExecutorAddr>>, CalledBy),
}

/// How a module calls an instance.
#[derive(Clone)]
enum CalledBy {
    /// By the types of the specialization, and only if it has code of these.
    Types,
    /// By these types, whatever code it has.
    Signature(SpecializedSignature),
    /// By the boxed convention.
    Invoke,
}

impl LinkerInfo {
    /// Says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the module defines as `name` is found as `symbol`.
    #[must_use]
    pub fn define(mut self, name: &str, symbol: &str) -> Self {
        self.names.insert(name.into(), symbol.into());
        self
    }

    /// What the module refers to as `name` is `symbol`: a function of another unit, a stub, a function of a library.
    #[must_use]
    pub fn refer_to(self, name: &str, symbol: &str) -> Self {
        self.define(name, symbol)
    }

    /// What the module refers to as `name` lies at `address`, which has to stay what it is for as long as the code is there.
    #[must_use]
    pub fn refer_to_address(mut self, name: &str, address: ExecutorAddr) -> Self {
        self.places.insert(name.into(), Place::Address(address));
        self
    }

    /// What the module calls as `name` is the specialized code of `instance`, directly, if there is some when the module is linked; and
    /// `otherwise`: a lazy function, say, that compiles it.
    ///
    /// The caller keeps the code. What was linked directly stays as it is when the instance gets other code: it is an assumption, and who
    /// has to take that back has its validity [end](uruk_core::CodeInstanceTable::redefine).
    #[must_use]
    pub fn refer_to_instance(
        mut self,
        name: &str,
        instance: Arc<CodeInstance<ExecutorAddr>>,
        otherwise: &str,
    ) -> Self {
        self.places.insert(name.into(), Place::Instance(instance, CalledBy::Types));
        self.define(name, otherwise)
    }

    /// As [`refer_to_instance`](Self::refer_to_instance), of an instance that may have boxed code alone. Then an adapter is linked with the
    /// module: it boxes the arguments, calls what the instance has as `invoke` at that time, and unboxes the result. Nothing compiled is
    /// `otherwise`, as ever.
    ///
    /// # Errors
    /// [`TrampolineError::TooManyParameters`].
    pub fn refer_to_instance_as(
        mut self,
        name: &str,
        instance: Arc<CodeInstance<ExecutorAddr>>,
        signature: SpecializedSignature,
        otherwise: &str,
    ) -> Result<Self, TrampolineError> {
        signature.check()?;
        self.places.insert(name.into(), Place::Instance(instance, CalledBy::Signature(signature)));
        Ok(self.define(name, otherwise))
    }

    /// What the module calls as `name`, as a [`BoxedFn`](crate::invoke::BoxedFn), is the `invoke` of `instance` if there is one when the module
    /// is linked; and `otherwise`, of the same convention. The caller passes the instance.
    #[must_use]
    pub fn refer_to_invoke(
        mut self,
        name: &str,
        instance: Arc<CodeInstance<ExecutorAddr>>,
        otherwise: &str,
    ) -> Self {
        self.places.insert(name.into(), Place::Instance(instance, CalledBy::Invoke));
        self.define(name, otherwise)
    }

    /// What a name of the module is called in the program; nothing if it stays as it is.
    pub(super) fn name_in_program(&self, name: &str) -> Option<Box<str>> {
        self.names.get(name).cloned()
    }

    /// Where a name of the module is, if that is known without a symbol.
    fn address(&self, name: &str) -> Option<ExecutorAddr> {
        match self.places.get(name)? {
            Place::Address(address) => Some(*address),
            Place::Instance(instance, CalledBy::Invoke) => instance.invoke(),
            Place::Instance(instance, CalledBy::Types | CalledBy::Signature(_)) => match instance.read() {
                CodeInstanceState::Specialized { specptr, .. } => Some(specptr),
                _ => None,
            },
        }
    }

    /// The code of adapters that a module may need now: for instances that can be called, but perhaps not by the module's convention.
    fn adapters(&self) -> HashMap<&str, TrampolineCode> {
        let mut adapters = HashMap::new();
        for (name, place) in &self.places {
            let Place::Instance(instance, CalledBy::Signature(signature)) = place else { continue };
            // There is none as long as it is unset.
            let code = TrampolineCode::new(signature, &InvokeApi::Specialized(instance.clone()));
            adapters.extend(code.ok().map(|code| (&**name, code)));
        }
        adapters
    }

    /// Whether a name is never looked up.
    pub(super) fn is_placed(&self, name: &str) -> bool {
        matches!(self.places.get(name), Some(Place::Address(_)))
    }
}

impl fmt::Debug for LinkerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.places.len();
        f.debug_struct("LinkerInfo").field("names", &self.names).field("places", &places).finish()
    }
}

/// Links objects whose names mean what is said beside them.
pub(super) struct MeaningLayer {
    pub(super) layer: ObjectLinkingLayer,
    pub(super) info: Arc<LinkerInfo>,
}

impl ObjectLayer for MeaningLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let Self { layer, info } = self;
        let address = |name: &str| info.address(name);
        let names = |name: &str| info.name_in_program(name);
        let code = info.adapters();
        let adapter = |name: &str| code.get(name).map(|code| code.graph(name));
        let keep = (!code.is_empty()).then(|| info.clone() as AfterCode);
        layer.emit_changed(responsibility, &object, keep, |graph| {
            graph.place(&address).adapt(&adapter)?.rename(&names)
        });
    }
}
