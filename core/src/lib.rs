//! The symbol protocol of Uruk: sessions, dylibs, queries, materializers and the waiting forest.

pub mod sync;

mod address;
mod protocol;
mod symbol {
    pub(crate) mod flags;
    pub(crate) mod name;
    mod table;
}
mod task;

pub use address::{ExecutorAddr, ExecutorSymbolDef};
pub use symbol::flags::SymbolFlags;
pub use symbol::name::{SymbolName, SymbolStringPool};
pub use task::{InPlaceTaskDispatcher, Task, TaskDispatcher, TaskPriority, WaitError};
