//! Facts about a function: where it stands, its IR, its assembly.

use std::fmt;

use uruk::core::{Why, WhyState};
use uruk::inkwell::OptimizationLevel as InkwellLevel;
use uruk::inkwell::module::Module;
use uruk::inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetTriple};
use uruk::pipeline::ir::{CodegenLevel, OptimizationLevel, ThreadSafeModule};

use uruk_kaleidoscope::Prototype;

use super::unit::module_of;
use super::{ReplFunction, Session, SessionError, body_name};

/// Where a function stands.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    /// How it is called: `fib(n)`.
    pub(crate) head: String,
    /// How many bodies it has had.
    pub(crate) generation: u64,
    /// Of the last of them.
    pub(crate) state: TierState,
}

/// Whether a body is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierState {
    /// A tree: it was not called.
    NotCalled,
    /// It runs; at which level it was compiled.
    Compiled(OptimizationLevel),
    /// It could not be compiled.
    Failed,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: generation {}, ", self.head, self.generation)?;
        match self.state {
            TierState::NotCalled => f.write_str("not called yet, so there is no code"),
            TierState::Compiled(level) => write!(f, "compiled at {level}"),
            TierState::Failed => f.write_str("failed when it was called"),
        }
    }
}

fn head(prototype: &Prototype) -> String {
    let precedence = prototype.precedence.map_or(String::new(), |precedence| format!(" {precedence} "));
    format!("{}{precedence}({})", prototype.name, prototype.parameters.join(" "))
}

impl Session {
    /// The names of the functions of the program.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// The engine's knowledge of a function's body; nothing if there is no such function.
    pub(crate) fn why(&self, name: &str) -> Option<Why> {
        let function = self.functions.get(name)?;
        let body = self.jit.intern(&body_name(name, function.generation));
        Some(self.jit().session().why(self.bodies.dylib(), &body))
    }

    /// Where a function stands; nothing if there is no such function.
    pub(crate) fn tier(&self, name: &str) -> Option<Tier> {
        let (function, why) = (self.functions.get(name)?, self.why(name)?);
        let state = match why.state {
            WhyState::Ready { .. } => TierState::Compiled(self.level),
            WhyState::Failed(_) => TierState::Failed,
            _ => TierState::NotCalled,
        };
        Some(Tier { head: head(&function.definition.prototype), generation: function.generation, state })
    }

    /// How functions are called: `fib(n)`.
    pub(crate) fn heads(&self) -> impl Iterator<Item = String> {
        self.functions.values().map(|function| head(&function.definition.prototype))
    }

    /// The IR that the engine would compile if the function were called now; nothing if there is no such function. Nothing of the program
    /// changes.
    pub(crate) fn ir(&self, name: &str) -> Option<Result<String, SessionError>> {
        let function = self.functions.get(name)?;
        Some(
            self.optimized(name, function)
                .and_then(|module| Ok(module.with_module(|module| module.print_to_string().to_string())?)),
        )
    }

    /// The same as assembly.
    pub(crate) fn assembly(&self, name: &str) -> Option<Result<String, SessionError>> {
        let function = self.functions.get(name)?;
        Some(self.optimized(name, function).and_then(|module| {
            module.with_module(|module| self.assembly_of(module))?.map_err(SessionError::Call)
        }))
    }

    fn optimized(&self, name: &str, function: &ReplFunction) -> Result<ThreadSafeModule, SessionError> {
        let body = body_name(name, function.generation);
        let module = module_of(&function.definition, &body, &self.program.functions())?;
        self.jit().ir_layer().compiler().optimize(&module)?;
        Ok(module)
    }

    fn assembly_of(&self, module: &Module<'_>) -> Result<String, String> {
        let options = self.jit().ir_layer().compiler().target().options();
        let level = match options.codegen_level {
            CodegenLevel::None => InkwellLevel::None,
            CodegenLevel::Less => InkwellLevel::Less,
            CodegenLevel::Default => InkwellLevel::Default,
            CodegenLevel::Aggressive => InkwellLevel::Aggressive,
        };
        Target::initialize_x86(&InitializationConfig::default());
        let triple = TargetTriple::create(&options.triple);
        let target = Target::from_triple(&triple).map_err(|error| error.to_string())?;
        let machine = target
            .create_target_machine(
                &triple,
                &options.cpu,
                &options.features,
                level,
                RelocMode::PIC,
                CodeModel::Small,
            )
            .ok_or("LLVM has no such target")?;
        let text =
            machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(text.as_slice()).into_owned();
        // Directives tell an assembler what people need not know.
        let is_code = |line: &&str| {
            let word = line.trim_start();
            !word.starts_with('.') && !word.starts_with('#') && !word.starts_with('\0') && !word.is_empty()
                || word.starts_with(".LBB")
        };
        Ok(text.lines().filter(is_code).fold(String::new(), |text, line| text + line + "\n"))
    }
}
