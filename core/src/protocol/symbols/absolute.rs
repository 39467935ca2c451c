//! Absolute: symbols whose addresses are known when they are defined.
//!
//! Such a row carries its address in place of a unit. The first search makes it Ready at once: nothing is claimed, no
//! task runs, there is no responsibility. Otherwise it is like any definition that was never searched: it competes,
//! may be overridden while it is weak, and names the unit that it came with.

use crate::{DefineError, SymbolMap, SymbolName};

use crate::protocol::state::{Effects, Payload, SessionState};
use crate::protocol::storage::{DylibId, TrackerId};

/// The description of a unit of addresses alone.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) unit_name: SymbolName,
    pub(crate) symbols: SymbolMap,
    /// The work in progress of a closing session may still define.
    pub(crate) by_task: bool,
}

impl<P: Payload> SessionState<P> {
    /// Defines symbols at known addresses, all of them or none.
    ///
    /// Each row stands alone from then on: searching one symbol leaves the others as they are.
    pub(crate) fn define_addresses(
        &mut self,
        dylib: DylibId,
        tracker: Option<TrackerId>,
        addresses: Addresses,
        effects: &mut Effects<P>,
    ) -> Result<(), DefineError> {
        let Addresses { unit_name, mut symbols, by_task } = addresses;
        let flags = symbols.iter().map(|(name, definition)| (name, definition.flags));
        let admitted = self.admit(dylib, tracker, flags, by_task);
        let (tracker, competition) =
            admitted.map_err(|refusal| self.refusal_error(refusal, dylib, unit_name.clone()))?;
        for name in &competition.yielding {
            symbols.remove(name);
        }
        self.make_room(competition.overridden, effects);
        if symbols.is_empty() {
            return Ok(());
        }
        self.observe_definition(dylib, &unit_name, symbols.keys(), effects);
        for (name, definition) in symbols {
            self.definitions.define_address(tracker, name, &unit_name, definition, effects);
        }
        Ok(())
    }
}
