//! Trampolines between the two conventions of code instances: boxed, which is the same for all, and specialized, by types.
//!
//! ```text
//!   boxed caller ─▶ invoke: trampoline ─ unboxes ─▶ specptr ─ boxes the result
//!   specialized caller ─▶ specptr: trampoline ─ boxes ─▶ invoke of an instance ─ unboxes the result
//! ```
//!
//! A trampoline reads the words of its [`CodeInstance`] in their place, each time it is called. So it reaches better code when the instance
//! gets better code. A trampoline that is called boxed serves all instances of its signature.
//!
//! A function that is not compiled yet needs no trampoline of this kind: a [lazy function](crate::lazy) is an address that compiles when it
//! is called, so its stub is a `specptr` or an `invoke`.

mod code;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutorAddr, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SymbolFlags, SymbolName,
};
use uruk_instances::CodeInstance;

use crate::arch::CodeField;
use crate::arch::x86_64::{Register, Trampoline};
use crate::link::graph::{Edge, SectionRole};
use crate::link::{LinkError, LinkGraph};
use crate::linking::{ObjectLinkingLayer, StubTargets, Stubs};

/// A value as the boxed convention passes it: one word, which means what the embedder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BoxedValue(pub u64);

/// A function of the boxed convention: its instance, its arguments, and how many they are.
pub type BoxedFn =
    unsafe extern "C-unwind" fn(*const CodeInstance<ExecutorAddr>, *const BoxedValue, usize) -> BoxedValue;

/// How the specialized convention passes a value, and how the embedder makes a boxed one of it and back.
///
/// The functions may unwind, as for a value of another type. If they collect garbage: a trampoline that boxes has arguments in its frame, boxed and
/// not, which a collector must treat as roots that may be no pointers, and leave where they are.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    /// Boxed, in an integer register.
    Boxed,
    /// 64 bits in an integer register.
    Integer {
        /// Makes a boxed value.
        boxes: extern "C-unwind" fn(u64) -> BoxedValue,
        /// Takes what is in a boxed value.
        unboxes: extern "C-unwind" fn(BoxedValue) -> u64,
    },
    /// A `double`.
    Float {
        /// Makes a boxed value.
        boxes: extern "C-unwind" fn(f64) -> BoxedValue,
        /// Takes what is in a boxed value.
        unboxes: extern "C-unwind" fn(BoxedValue) -> f64,
    },
}

/// Arguments and result of the code of a specialization, by the C convention of x86-64 System V, in registers alone.
#[derive(Clone, Debug)]
pub struct SpecializedSignature {
    /// At most six of boxed values and integers, and eight floats.
    pub parameters: Vec<ValueType>,
    /// The result.
    pub result: ValueType,
}

/// By which convention a trampoline is called. It calls by the other one.
#[derive(Clone, Debug)]
#[doc(alias = "jl_invoke_api")]
pub enum InvokeApi {
    /// As a [`BoxedFn`]: it unboxes its arguments and calls the `specptr` of the instance that it is given. The `invoke` of a pair.
    Boxed,
    /// By its signature: it boxes its arguments and calls the `invoke` of this instance, which it keeps. For callers that know the types
    /// of a function that is not compiled for them.
    Specialized(Arc<CodeInstance<ExecutorAddr>>),
}

/// Why there is no such trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrampolineError {
    /// The parameters need more registers than there are.
    #[error("parameter {index} of the signature would be passed in memory")]
    TooManyParameters {
        /// The first of them, counted from 0.
        index: usize,
    },
    /// The instance cannot be called.
    #[error("the code instance to be called is unset")]
    Unset,
}

/// Makes trampolines.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::{ExecutionSession, ExecutorAddr, LookupRequest, LookupSet};
/// use uruk_instances::{CodeInstance, CodeSignature};
/// use uruk_pipeline::invoke::{BoxedFn, BoxedValue, InvokeApi, InvokeTrampolines, SpecializedSignature, ValueType};
/// use uruk_pipeline::linking::ObjectLinkingLayer;
/// use uruk_pipeline::runtime::in_process::InProcessExecutor;
/// use uruk_pipeline::memory::InProcessMemoryManager;
/// use uruk_pipeline::platform::Platform;
///
/// extern "C-unwind" fn boxes(integer: u64) -> BoxedValue {
///     BoxedValue(integer << 1 | 1)
/// }
/// extern "C-unwind" fn unboxes(value: BoxedValue) -> u64 {
///     value.0 >> 1
/// }
/// extern "C" fn add(left: u64, right: u64) -> u64 {
///     left + right
/// }
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let memory = Arc::new(InProcessMemoryManager::new()?);
/// let trampolines = InvokeTrampolines::new(ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new())));
/// let integer = ValueType::Integer { boxes, unboxes };
/// let signature = SpecializedSignature { parameters: vec![integer; 2], result: integer };
/// let name = session.intern("invoke two integers");
/// main.define(trampolines.unit(name.clone(), &signature, &InvokeApi::Boxed)?)?;
/// let invoke = session.lookup(LookupRequest::along(&main, LookupSet::one(name.clone())))?.get(&name).unwrap().address;
///
/// let instance = CodeInstance::new();
/// let code = ExecutorAddr::from_ptr(add as extern "C" fn(u64, u64) -> u64 as *const u8);
/// instance.publish(invoke, code, CodeSignature::Specialized).expect("nothing was there");
/// // SAFETY: a trampoline has this signature.
/// let invoke: BoxedFn = unsafe { std::mem::transmute(invoke.to_ptr::<()>()) };
/// // SAFETY: the instance is one of two integers, and so many are passed.
/// let sum = unsafe { invoke(&instance, [boxes(40), boxes(2)].as_ptr(), 2) };
/// assert_eq!(sum, boxes(42));
/// session.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Julia, `emit_tojlinvoke` and `gen_invoke_wrapper` in `src/codegen.cpp`.
#[derive(Clone, Debug)]
pub struct InvokeTrampolines {
    layer: ObjectLinkingLayer,
}

impl InvokeTrampolines {
    /// Trampolines are linked by `layer`.
    pub fn new(layer: ObjectLinkingLayer) -> Self {
        Self { layer }
    }

    /// A unit that defines `name` as a function that is called by `api`, and adapts it to the other convention.
    ///
    /// A caller by the boxed convention passes as many arguments as there are parameters, and an instance whose code has the signature.
    ///
    /// # Errors
    /// See [`TrampolineError`].
    ///
    /// # Cost
    /// A link of some 200 bytes. For two integers and their sum a call takes 12 ns more: it is five calls, three of which box or unbox
    /// (`pipeline/benches/invoke_trampolines.rs`).
    pub fn unit(
        &self,
        name: SymbolName,
        signature: &SpecializedSignature,
        api: &InvokeApi,
    ) -> Result<Box<dyn MaterializationUnit>, TrampolineError> {
        let code = TrampolineCode::new(signature, api)?;
        Ok(Box::new(TrampolineUnit { name, layer: self.layer.clone(), code, api: api.clone() }))
    }
}

/// A trampoline before it is linked. The instance whose address is in it is kept elsewhere.
pub(crate) struct TrampolineCode {
    code: Trampoline,
    frames: [u8; 64],
}

impl TrampolineCode {
    pub(crate) fn new(signature: &SpecializedSignature, api: &InvokeApi) -> Result<Self, TrampolineError> {
        let places = places(&signature.parameters)?;
        let code = match api {
            InvokeApi::Boxed => code::unboxing(&places, signature.result),
            InvokeApi::Specialized(instance) if instance.invoke().is_none() => {
                return Err(TrampolineError::Unset);
            }
            InvokeApi::Specialized(instance) => code::boxing(&places, signature.result, instance),
        };
        Ok(Self { frames: code.frames(), code })
    }

    /// The graph of the function `name`.
    pub(crate) fn graph(&self, name: &str) -> Result<LinkGraph<'_>, LinkError> {
        let mut graph = LinkGraph::builder("<trampoline>");
        let block = graph.block(".text", SectionRole::Code, self.code.bytes(), 16);
        let target = graph.define(name, block, 0);
        let CodeField { offset, kind, addend } = Trampoline::FRAMES_BEGIN;
        let begin = Edge { offset, kind, target, addend };
        graph.unwind_table(&self.frames, &[begin]);
        graph.build()
    }
}

impl SpecializedSignature {
    /// Whether all parameters are passed in registers.
    #[cfg(feature = "llvm")]
    pub(crate) fn check(&self) -> Result<(), TrampolineError> {
        places(&self.parameters).map(drop)
    }
}

/// Where each parameter is passed.
fn places(parameters: &[ValueType]) -> Result<Vec<(ValueType, Register)>, TrampolineError> {
    let (mut integers, mut floats) = (Register::integers(), Register::floats());
    let place = |(index, parameter): (usize, &ValueType)| {
        let place = match parameter {
            ValueType::Boxed | ValueType::Integer { .. } => integers.next(),
            ValueType::Float { .. } => floats.next(),
        };
        Ok((*parameter, place.ok_or(TrampolineError::TooManyParameters { index })?))
    };
    parameters.iter().enumerate().map(place).collect()
}

struct TrampolineUnit {
    name: SymbolName,
    layer: ObjectLinkingLayer,
    code: TrampolineCode,
    /// Has the instance whose address is in the code.
    api: InvokeApi,
}

impl MaterializationUnit for TrampolineUnit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.code.graph(self.name.as_str()) {
            // It leads nowhere beside its references. The values that it keeps go after the code, which threads may run until then.
            Ok(graph) => {
                let stubs = Stubs { targets: Arc::new(StubTargets::default()), cells: Arc::new(self.api) };
                self.layer.emit_stubs(responsibility, graph, stubs);
            }
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, _symbol: &SymbolName) {}
}
