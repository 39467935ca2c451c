//! The symbols that a module defines for others, found without compiling it.
//!
//! Left out: values without a name, names of the module alone (`private`, `internal`, `llvm.*`), copies (`available_externally`), and
//! symbols that code generation adds later (`DW.ref.*`, constant pools). Symbols of module-level assembly are found by assembling it
//! without the rest, with stand-ins for the definitions of the module that it names: exact where scanning the text is not.

use std::collections::{BTreeMap, HashSet};
use uruk_core::SymbolFlags;

use super::ThreadSafeContext;
use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::{module_bits, symbol_bits};
use super::module::{LockedModule, ThreadSafeModule};
use super::optimize::OptimizationPipeline;
use super::read::with_lazy_bitcode;
use super::target::JitTargetMachineBuilder;
use crate::object::{CommonExtent, ObjectBuffer, ObjectError, ObjectInterface};

/// The symbols a module defines, in the order of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInterface {
    /// Name and kind of each definition others can see.
    pub symbols: Vec<ModuleSymbol>,
    /// The names it refers to and does not define. Weak references are left out, and symbols that code generation adds.
    pub undefined: Vec<Box<str>>,
    /// Whether the module has code to run before the program.
    pub has_initializers: bool,
    /// Whether the module has code to run after the program.
    pub has_finalizers: bool,
    /// Whether the module has sections that linkers lay next to those of the same name in other files, or
    /// asks where they are (`__start_X`, `__stop_X`).
    pub shares_sections: bool,
    /// Whether its functions are why: by assembly in their bodies, or by what code generation lists of them.
    pub code_shares_sections: bool,
    /// Whether the module has thread-local variables.
    pub has_thread_locals: bool,
    /// Whether the module has assembly of its own, whose references are not among `undefined`.
    pub has_assembly: bool,
}

/// One definition of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSymbol {
    /// Its name, as linkers see it.
    pub name: Box<str>,
    /// Its flags.
    pub flags: SymbolFlags,
    /// Its size and alignment, if it is tentative.
    pub common: Option<CommonExtent>,
    /// Whether optimization may drop it when the module itself does not use it.
    pub(super) linkonce: bool,
}

impl ModuleInterface {
    /// Reads the interface of a module.
    ///
    /// # Errors
    /// [`CompileError`] if the module's assembly cannot be assembled, or its context is lost.
    ///
    /// # Cost
    /// 20 ns a symbol; 0.7 ms more if there is module-level assembly.
    pub fn of_module(
        module: &ThreadSafeModule,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        Self::of_locked(&module.lock()?, target)
    }

    /// Reads the interface of a module from its bitcode, leaving function bodies unread.
    ///
    /// # Errors
    /// [`CompileError::Parse`] for input that is no bitcode or cut off too early to tell; damage further on is found when the module is
    /// read whole.
    ///
    /// # Cost
    /// 10 ms for SQLite (2 MB of bitcode), a fifteenth of reading it whole.
    pub fn of_bitcode(
        bitcode: &ObjectBuffer,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        with_lazy_bitcode(bitcode, |module| Self::of_locked(module, target))?
    }

    /// The names of the definitions that optimization must be told to keep.
    pub(super) fn kept_symbols(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|symbol| symbol.linkonce).map(|symbol| &*symbol.name)
    }

    /// The names alone, as [`ArchiveIndex::read_with`](crate::object::ArchiveIndex::read_with) asks for them.
    pub fn into_names(self) -> Vec<Box<str>> {
        self.symbols.into_iter().map(|symbol| symbol.name).collect()
    }

    /// The names of the definitions whose flags are as `is_wanted` says.
    pub fn names_where(self, is_wanted: impl Fn(SymbolFlags) -> bool) -> impl Iterator<Item = Box<str>> {
        self.symbols.into_iter().filter(move |symbol| is_wanted(symbol.flags)).map(|symbol| symbol.name)
    }

    /// Whether a program that refers to nothing of the module runs the same without it.
    pub fn is_passive(&self) -> bool {
        let acts =
            self.has_initializers || self.has_finalizers || self.shares_sections || self.has_thread_locals;
        !acts && !self.has_assembly && self.symbols.iter().all(|symbol| symbol.common.is_none())
    }

    pub(super) fn of_locked(
        module: &LockedModule<'_>,
        target: &JitTargetMachineBuilder,
    ) -> Result<Self, CompileError> {
        let mut interface = Self::default();
        let bits = module.symbols(false, |name, bits, extent| {
            if bits & symbol_bits::UNDEFINED == 0 {
                interface.symbols.push(ModuleSymbol::new(name, bits, extent));
            } else if bits & symbol_bits::WEAK == 0 {
                interface.undefined.push(name.into());
            }
        });
        interface.has_initializers = bits & module_bits::INITIALIZERS != 0;
        interface.has_finalizers = bits & module_bits::FINALIZERS != 0;
        interface.shares_sections = bits & module_bits::SHARES_SECTIONS != 0;
        interface.code_shares_sections = bits & module_bits::CODE_SHARES_SECTIONS != 0;
        interface.has_thread_locals = bits & module_bits::THREAD_LOCALS != 0;
        let assembly = module.inline_assembly();
        interface.has_assembly = !assembly.is_empty();
        if interface.has_assembly {
            let named = definitions_named_by(module, &assembly);
            let object = assemble(module, &named, &assembly, target)?;
            interface.add_assembly(&object, &named).map_err(|error| CompileError::Codegen {
                module: module.name().clone(),
                message: format!("module-level assembly: {error}"),
            })?;
        }
        Ok(interface)
    }

    fn add_assembly(&mut self, object: &ObjectBuffer, named: &Definitions) -> Result<(), ObjectError> {
        let assembled = ObjectInterface::read(object)?;
        self.has_initializers |= assembled.has_initializers;
        self.has_finalizers |= assembled.has_finalizers;
        self.shares_sections |= assembled.shares_sections;
        let of_assembly = assembled.defined.iter().filter(|symbol| !named.contains_key(symbol.name));
        self.symbols.extend(of_assembly.map(|symbol| ModuleSymbol {
            name: symbol.name.into(),
            flags: symbol.flags,
            common: symbol.common,
            linkonce: false,
        }));
        Ok(())
    }
}

impl ModuleSymbol {
    /// Something local that several parts of a module know by this name.
    pub(super) fn local(name: &str, bits: u32) -> Self {
        let symbol = Self::new(name, bits, CommonExtent::default());
        let flags = symbol.flags & (SymbolFlags::CALLABLE | SymbolFlags::THREAD_LOCAL);
        Self { flags, ..symbol }
    }

    fn new(name: &str, bits: u32, extent: CommonExtent) -> Self {
        let mut flags = SymbolFlags::empty();
        flags.set(SymbolFlags::EXPORTED, bits & symbol_bits::EXPORTED != 0);
        flags.set(SymbolFlags::WEAK, bits & symbol_bits::WEAK != 0);
        flags.set(SymbolFlags::COMMON, bits & symbol_bits::COMMON != 0);
        flags.set(SymbolFlags::CALLABLE, bits & symbol_bits::CALLABLE != 0);
        flags.set(SymbolFlags::THREAD_LOCAL, bits & symbol_bits::THREAD_LOCAL != 0);
        let common = flags.contains(SymbolFlags::COMMON).then_some(extent);
        Self { name: name.into(), flags, common, linkonce: bits & symbol_bits::LINKONCE != 0 }
    }
}

/// Definitions in IR, with the assembly that stands for each.
type Definitions = BTreeMap<Box<str>, String>;

/// The definitions of `module`, local ones too, whose names occur in its assembly: it may make further names
/// for them (`.set`, `.symver`), which are definitions only if these are.
fn definitions_named_by(module: &LockedModule<'_>, assembly: &[u8]) -> Definitions {
    let words: HashSet<&[u8]> = assembly
        .split(|byte| !(byte.is_ascii_alphanumeric() || b"_.$".contains(byte) || !byte.is_ascii()))
        .collect();
    let mut named = Definitions::default();
    module.symbols(true, |name, bits, _| {
        if words.contains(name.as_bytes()) {
            named.insert(name.into(), stand_in(name, bits));
        }
    });
    named
}

/// `name` as a definition of one byte, of the kind that `bits` say.
fn stand_in(name: &str, bits: u32) -> String {
    let (section, kind) = if bits & symbol_bits::CALLABLE != 0 {
        (".text", "function")
    } else if bits & symbol_bits::THREAD_LOCAL != 0 {
        (".section .tdata,\"awT\",@progbits", "tls_object")
    } else {
        (".data", "object")
    };
    let global = if bits & symbol_bits::LOCAL != 0 { String::new() } else { format!(".globl {name}; ") };
    format!("{section}; {global}.type {name},@{kind}; {name}: .byte 0\n")
}

/// An object made of the module's assembly alone, with something in place of the definitions it names.
fn assemble(
    module: &LockedModule<'_>,
    named: &Definitions,
    assembly: &[u8],
    target: &JitTargetMachineBuilder,
) -> Result<ObjectBuffer, CompileError> {
    let mut text: Vec<u8> = Vec::with_capacity(assembly.len() + 64 * named.len());
    for stand_in in named.values() {
        text.extend_from_slice(stand_in.as_bytes());
    }
    text.extend_from_slice(b".text\n");
    text.extend_from_slice(assembly);
    let alone = ThreadSafeModule::new(&ThreadSafeContext::new(), module.name().clone());
    alone.lock()?.set_inline_assembly(&text);
    IrCompiler::new(target.clone(), OptimizationPipeline::none()).compile(alone)
}
