//! [`LinkerInfo`]: the meanings of a module's names. The names are unique in the module alone, and the linker learns their meanings.
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
use uruk_core::{ExecutorAddr, MaterializationResponsibility};
use uruk_instances::{CodeInstance, CodeInstanceState};

use crate::arch::Architecture;
use crate::invoke::{InvokeApi, SpecializedSignature, TrampolineCode, TrampolineError};
use crate::linking::{KeepAlive, ObjectLinkingLayer};
use crate::object::{ObjectBuffer, ObjectLayer};

/// The meaning of a module's names in the program: of a translation unit, as Julia calls a module with this beside it.
///
/// All other names mean themselves.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::ExecutorAddr;
/// use uruk_instances::CodeInstance;
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
    places: HashMap<Box<str>, ValuePlace>,
}

/// Where a value without a symbol lies, or one that need not be looked up by its symbol.
#[derive(Clone)]
enum ValuePlace {
    Address(ExecutorAddr),
    /// The module's name is that of the substitute until the instance has code.
    Instance(Arc<CodeInstance<ExecutorAddr>>, CalledBy),
}

/// How a module calls an instance.
#[derive(Clone)]
enum CalledBy {
    /// By the types of the specialization, and only if it has code of these.
    Types,
    /// By these types, even if its code has others.
    Signature(SpecializedSignature),
    /// By the boxed convention.
    Invoke,
}

impl LinkerInfo {
    /// No names.
    pub fn new() -> Self {
        Self::default()
    }

    /// The module's definition of `name` is found as `symbol`.
    #[must_use]
    pub fn define(mut self, name: &str, symbol: &str) -> Self {
        self.names.insert(name.into(), symbol.into());
        self
    }

    /// The module's reference `name` means `symbol`: a function of another unit, a stub, a function of a library.
    #[must_use]
    pub fn refer_to(self, name: &str, symbol: &str) -> Self {
        self.define(name, symbol)
    }

    /// The module's reference `name` lies at `address`. The value there has to stay for as long as the code is there.
    #[must_use]
    pub fn refer_to_address(mut self, name: &str, address: ExecutorAddr) -> Self {
        self.places.insert(name.into(), ValuePlace::Address(address));
        self
    }

    /// The module's calls of `name` go directly to the specialized code of `instance`, if there is some when the module is linked. Without
    /// it they go to `otherwise`: a lazy function, say, that compiles it.
    ///
    /// The caller keeps the code. A direct link stays as it is when the instance gets other code: it is an assumption. To take it back,
    /// [end](uruk_instances::CodeInstanceTable::redefine) the validity of the code that was linked.
    #[must_use]
    pub fn refer_to_instance(
        mut self,
        name: &str,
        instance: Arc<CodeInstance<ExecutorAddr>>,
        otherwise: &str,
    ) -> Self {
        self.places.insert(name.into(), ValuePlace::Instance(instance, CalledBy::Types));
        self.define(name, otherwise)
    }

    /// As [`refer_to_instance`](Self::refer_to_instance), for an instance that may have only boxed code. Then an adapter is linked with the
    /// module: it boxes the arguments, calls the instance's `invoke` of that time, and unboxes the result. Without any code, calls go to
    /// `otherwise`.
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
        self.places.insert(name.into(), ValuePlace::Instance(instance, CalledBy::Signature(signature)));
        Ok(self.define(name, otherwise))
    }

    /// The module's calls of `name`, as a [`BoxedFn`](crate::invoke::BoxedFn), go to the `invoke` of `instance` if there is one when the
    /// module is linked. Without it they go to `otherwise`, of the same convention. The caller passes the instance.
    #[must_use]
    pub fn refer_to_invoke(
        mut self,
        name: &str,
        instance: Arc<CodeInstance<ExecutorAddr>>,
        otherwise: &str,
    ) -> Self {
        self.places.insert(name.into(), ValuePlace::Instance(instance, CalledBy::Invoke));
        self.define(name, otherwise)
    }

    /// The name in the program of a name of the module. `None` if it is the same.
    pub(super) fn name_in_program(&self, name: &str) -> Option<Box<str>> {
        self.names.get(name).cloned()
    }

    /// Where a name of the module is, if that is known without a symbol.
    fn address(&self, name: &str) -> Option<ExecutorAddr> {
        match self.places.get(name)? {
            ValuePlace::Address(address) => Some(*address),
            ValuePlace::Instance(instance, CalledBy::Invoke) => instance.invoke(),
            ValuePlace::Instance(instance, CalledBy::Types | CalledBy::Signature(_)) => match instance.read()
            {
                CodeInstanceState::Specialized { specptr, .. } => Some(specptr),
                _ => None,
            },
        }
    }

    /// The code of adapters that a module may need now: for instances that can be called, but perhaps not by the module's convention.
    fn adapters(&self) -> HashMap<&str, TrampolineCode> {
        let mut adapters = HashMap::new();
        for (name, place) in &self.places {
            let ValuePlace::Instance(instance, CalledBy::Signature(signature)) = place else { continue };
            // There is none as long as it is unset.
            let code = TrampolineCode::new(signature, &InvokeApi::Specialized(instance.clone()));
            adapters.extend(code.ok().map(|code| (&**name, code)));
        }
        adapters
    }

    /// Whether a name is never looked up.
    pub(super) fn is_placed(&self, name: &str) -> bool {
        matches!(self.places.get(name), Some(ValuePlace::Address(_)))
    }
}

impl fmt::Debug for LinkerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.places.len();
        f.debug_struct("LinkerInfo").field("names", &self.names).field("places", &places).finish()
    }
}

/// Gives names of objects the meanings of a [`LinkerInfo`], and links the objects.
pub(super) struct RenameLayer {
    pub(super) layer: ObjectLinkingLayer,
    pub(super) info: Arc<LinkerInfo>,
}

impl ObjectLayer for RenameLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let Self { layer, info } = self;
        let address = |name: &str| info.address(name);
        let names = |name: &str| info.name_in_program(name);
        let code = info.adapters();
        let adapter = |name: &str| code.get(name).map(|code| code.graph(name));
        let keep = (!code.is_empty()).then(|| info.clone() as KeepAlive);
        layer.emit_changed(responsibility, &object, keep, |graph| {
            graph.place(&address).adapt(&adapter)?.rename(&names)
        });
    }

    fn architecture(&self) -> Architecture {
        self.layer.architecture()
    }
}
