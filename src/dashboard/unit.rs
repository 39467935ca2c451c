//! A unit, as an engine has it at this moment: why it is not Ready, its IR, its code.

use std::fmt::Write as _;

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, GasFormatter, Instruction, SymbolResolver, SymbolResult,
};
use serde_json::{Value, json};
use uruk_core::{ExecutorAddr, WeakJitDylib, WhyState};
use uruk_pipeline::debug::{self, FunctionCode};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::WantedIr;

use crate::jit::Jit;
use crate::metrics::EngineMetrics;

/// So much code of a unit is shown; a page has no use for more.
const CODE_BYTES_MAX: usize = 64 << 10;

/// So much text of a module is shown.
#[cfg(feature = "llvm")]
const IR_BYTES_MAX: usize = 1 << 20;

/// So many symbols of a unit are asked about until one is found that the program can look up.
const SYMBOLS_MAX: usize = 16;

/// The engine that a page asks. While there is a page, it keeps IR.
#[derive(Debug)]
pub(super) struct Asked {
    /// Symbols that are asked about are looked for here.
    pub(super) main: WeakJitDylib,
    pub(super) metrics: EngineMetrics,
    #[cfg(feature = "llvm")]
    ir: WantedIr,
}

impl Asked {
    pub(super) fn of(jit: &Jit) -> Self {
        Self {
            main: jit.main_dylib().downgrade(),
            metrics: jit.metrics(),
            #[cfg(feature = "llvm")]
            ir: jit.kept_ir().want(),
        }
    }

    /// Why a symbol is not Ready, as text for people. `None` if the engine is gone, or no symbol of that name is known there.
    pub(super) fn why(&self, symbol: &str, must_be_known: bool) -> Option<Value> {
        let main = self.main.upgrade()?;
        let session = main.session();
        let why = session.why(&main, &session.intern(symbol));
        let is_known = !matches!(why.state, WhyState::Undefined { .. });
        (is_known || !must_be_known)
            .then(|| json!({ "symbol": symbol, "dylib": &*why.dylib, "why": why.to_string() }))
    }

    /// All about a unit. `wanted` is the symbol that was looked up when it was claimed.
    pub(super) fn unit(&self, unit: &str, wanted: &str) -> Value {
        let code = debug::code_of_unit(unit, CODE_BYTES_MAX);
        let symbols = code.iter().map(|function| &*function.symbol).take(SYMBOLS_MAX).chain([wanted]);
        let why = symbols.filter(|symbol| !symbol.is_empty()).find_map(|symbol| self.why(symbol, true));
        let code =
            code.iter().map(|function| json!({ "title": &*function.symbol, "text": listing(function) }));
        json!({ "unit": unit, "why": why, "ir": self.ir(unit), "code": code.collect::<Vec<_>>() })
    }

    #[cfg(feature = "llvm")]
    fn ir(&self, unit: &str) -> Vec<Value> {
        let text = |module: &uruk_pipeline::ir::KeptModule| {
            let mut text = module.text().unwrap_or_else(|error| error.to_string());
            let more = text.len().saturating_sub(IR_BYTES_MAX);
            if more > 0 {
                text.truncate(text.floor_char_boundary(IR_BYTES_MAX));
                _ = write!(text, "\n; {more} bytes more. `--dump DIR` writes all of it.\n");
            }
            json!({ "title": format!("{} {}", module.name(), module.step), "text": text })
        };
        self.ir.of_unit(unit).iter().map(text).collect()
    }

    #[cfg(not(feature = "llvm"))]
    fn ir(&self, _unit: &str) -> Vec<Value> {
        Vec::new()
    }
}

/// The instructions of a function, with places in the source.
fn listing(function: &FunctionCode) -> String {
    let mut decoder = Decoder::with_ip(64, &function.bytes, function.address, DecoderOptions::NONE);
    let mut formatter = GasFormatter::with_options(Some(Box::new(AddressNames)), None);
    let mut places = function.places.iter().peekable();
    let (mut text, mut instruction) = (String::new(), Instruction::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        while let Some((_, place)) = places.next_if(|(address, _)| *address <= instruction.ip()) {
            _ = writeln!(text, "; {}:{}", place.file, place.line);
        }
        _ = write!(text, "{:>6x}  ", instruction.ip() - function.address);
        formatter.format(&instruction, &mut text);
        text.push('\n');
    }
    let more = function.size.saturating_sub(function.bytes.len() as u64);
    if more > 0 {
        _ = writeln!(text, "; {more} bytes more");
    }
    text
}

/// Names for the addresses in instructions.
struct AddressNames;

impl SymbolResolver for AddressNames {
    fn symbol(
        &mut self,
        _: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let (name, offset) = debug::name_at(ExecutorAddr::new(address))?;
        Some(SymbolResult::with_string(address - offset, name.into()))
    }
}
