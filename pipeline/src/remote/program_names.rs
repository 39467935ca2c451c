//! Names of an executor's program: those that its libraries use, and those that it looks up itself.

use serde::{Deserialize, Serialize};
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::connection::Connection;
use super::first_calls::CallThere;
use super::messages::StartLists;
use crate::executor::Startup;
use crate::peer::PeerFrame;

/// Finds the program's definition of a name, and the functions of code that came with it, which come before it is used.
pub type FindsNames = Box<dyn Fn(&str) -> (Option<ExecutorSymbolDef>, Startup) + Send + Sync>;

/// The names by which libraries there refer to the program.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ReferredNames {
    pub(super) required: Vec<String>,
    pub(super) optional: Vec<String>,
}

/// A definition, as numbers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct BoundSymbol {
    address: u64,
    flags: u8,
}

impl From<ExecutorSymbolDef> for BoundSymbol {
    fn from(ExecutorSymbolDef { address, flags, .. }: ExecutorSymbolDef) -> Self {
        Self { address: address.value(), flags: flags.bits() }
    }
}

impl From<BoundSymbol> for ExecutorSymbolDef {
    fn from(BoundSymbol { address, flags }: BoundSymbol) -> Self {
        Self::new(ExecutorAddr::new(address), SymbolFlags::from_bits_truncate(flags))
    }
}

/// The answer to a look for a name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NamedThere {
    pub(super) found: Option<BoundSymbol>,
    /// Functions of code that came with it, which come before it is used.
    pub(super) lists: StartLists,
}

impl Connection {
    /// Has `find` answer from now on, once.
    pub(super) fn serve_names(&self, find: FindsNames) {
        // A process becomes one program.
        let _ = self.names_of_program.set(find);
    }

    /// The program's definition of a name.
    pub(super) fn named(&self, name: &str) -> NamedThere {
        let find = self.names_of_program.get();
        find.map_or_else(NamedThere::default, |find| {
            let (found, startup) = find(name);
            NamedThere { found: found.map(Into::into), lists: (&startup).into() }
        })
    }
}

/// The name that an executor asks for.
///
/// # Errors
/// The defect of the message.
pub(super) fn named_in(frame: &PeerFrame) -> Result<CallThere, String> {
    let name = postcard::from_bytes(frame.body()).map_err(|error| format!("half a name: {error}"))?;
    Ok(CallThere::Named { number: frame.id, name })
}
