//! Absolute symbols: addresses known from the start.

use crate::session::ABSOLUTE_SYMBOLS;
use crate::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolFlags,
    SymbolMap, SymbolName,
};

/// A unit that defines symbols at addresses known already.
///
/// # Cost
/// No task runs and there is no responsibility: each symbol becomes Ready by itself when it is first looked up.
///
/// ORC: `absoluteSymbols`.
#[doc(alias = "absoluteSymbols")]
pub fn absolute_symbols(symbols: SymbolMap) -> Box<dyn MaterializationUnit> {
    Box::new(AbsoluteSymbols { symbols })
}

struct AbsoluteSymbols {
    symbols: SymbolMap,
}

impl MaterializationUnit for AbsoluteSymbols {
    fn name(&self) -> &str {
        ABSOLUTE_SYMBOLS
    }

    fn known_addresses(&mut self) -> Option<SymbolMap> {
        Some(std::mem::take(&mut self.symbols))
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(
            self.symbols.iter().map(|(name, definition)| (name.clone(), definition.flags)).collect(),
        )
    }

    /// Not for what was defined: for units that replace others, or are part of one.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // A symbol for side effects only has no address, even if the map has one.
        let mut symbols = self.symbols;
        symbols.retain(|_, definition| {
            !definition.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY)
        });
        // A refusal means that the symbols were removed meanwhile: only they remain to be failed.
        match responsibility.notify_resolved(&symbols) {
            Ok(resolved) => {
                if let Err(refused) = resolved.notify_emitted(Vec::new()) {
                    refused.fail();
                }
            }
            Err(refused) => {
                refused.fail();
            }
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.symbols.remove(symbol);
    }
}
