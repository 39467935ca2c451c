//! Absolute: symbols whose addresses are known when they are defined.
//!
//! Such a row carries its address in place of a unit. The first search makes it Ready at once: nothing is claimed, no
//! task runs, nobody is responsible. Everything else is as for any definition that nobody has searched: it competes,
//! may be overridden while it is weak, and names the unit that it came with.

use crate::{DefineError, ExecutorAddr, SymbolFlags, SymbolMap, SymbolName};

use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::state::row::{RowState, Source};
use crate::protocol::storage::ids::{DylibId, RowId, TrackerId};

/// What a unit of nothing but addresses says of itself.
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
        let (tracker, competition) = match self.admit(dylib, tracker, flags, by_task) {
            Ok(admitted) => admitted,
            Err(refusal) => return Err(self.refusal_error(refusal, dylib, unit_name)),
        };
        for name in &competition.yielding {
            symbols.remove(name);
        }
        for row in competition.overridden {
            self.discard(row, effects);
        }
        if symbols.is_empty() {
            return Ok(());
        }
        self.observe_definition(dylib, &unit_name, symbols.keys(), effects);
        for (name, definition) in symbols {
            let source = Source::Address(definition.address);
            let state = RowState::NeverSearched { source };
            self.insert_row(tracker, name, &unit_name, definition.flags, state, effects);
        }
        Ok(())
    }

    /// Somebody has searched a symbol whose address is known: it is Ready, and bound.
    pub(crate) fn bind(&mut self, id: RowId, address: ExecutorAddr, effects: &mut Effects<P>) {
        let row = &mut self.rows[id];
        row.flags = row.flags.without_weak_and_common();
        // What exists for its side effects only has no address, whatever the map says.
        let has_none = row.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        row.advance(RowState::Ready { address: if has_none { ExecutorAddr::NULL } else { address } });
        self.publish(id);
        self.observe_ready(id, effects);
    }
}
