//! Linked code as debuggers, profilers and reports see it: names for addresses, and lines of sources.
//!
//! ```text
//!   link ─▶ NamedCode ─▶ register ─▶ names ◀── symbol_at, reports of signals
//!                                      ├─────▶ gdb (merged ELF files in memory)
//!                                      └─────▶ perf (a map, or jitdump)
//! ```
//!
//! There is one table for the process, since addresses are the process's. Code is in it from its publication until just before its memory
//! goes: an address that is used again by other code never leads to the old name.
//!
//! Symbols are kept as ranges. DWARF is kept as the object has it, and relocated when it is asked for: an object without DWARF is not kept.
//!
//! **Never:** nothing here runs code, or follows an address that DWARF or a symbol table says.
//!
//! **Holds.** Locks are held over forks; `watchers.rs` has their order. No owner of an object's bytes is dropped under one.

mod code;
mod dwarf;
mod frames;
mod gdb;
mod image;
mod jitdump;
mod lines;
mod listing;
mod memory;
mod names;
mod perf_map;
mod watchers;

pub use code::{DebugFile, NamedCode, NamedSymbol, SymbolSource, SymbolTable};
pub use lines::SourcePlace;
#[cfg(feature = "llvm")]
pub(crate) use listing::is_of_unit;
pub use listing::{FunctionCode, code_of_unit, name_at};
pub use names::{NameRegistration, SymbolAt, register, symbol_at, symbol_in};
pub(crate) use names::{TABLE, try_symbol_at};
pub(crate) use watchers::WATCHERS;
pub use watchers::{PerfFormat, has_debugger, set_debugger, set_perf, settle};
