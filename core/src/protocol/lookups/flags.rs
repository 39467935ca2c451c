//! Flags: what symbols are, found as any lookup finds them, without claiming anything.

use crate::{ExecutorAddr, ExecutorSymbolDef, LookupError, SymbolLookupFlags};

use crate::protocol::state::{Answer, Entries, Entry, Payload, Progress, Search, SessionState};
use crate::protocol::storage::RowId;

impl<P: Payload> SessionState<P> {
    /// The answer to a lookup of flags: every state of a definition will do, and symbols that exist for their side
    /// effects only are told as well.
    pub(crate) fn answer_flags(
        &self,
        search: &Search,
        rows: &[Option<RowId>],
    ) -> Result<Answer, LookupError> {
        let (mut found, mut missing) = (Entries::with_capacity(rows.len()), Vec::new());
        for ((name, lookup_flags), row) in search.symbols.0.iter().zip(rows) {
            match row {
                Some(row) => {
                    let (address, flags) = (ExecutorAddr::NULL, self.definitions[*row].flags);
                    let progress = Progress::Found(ExecutorSymbolDef::new(address, flags));
                    found.push(Entry { name: name.clone(), row: *row, progress });
                }
                None if *lookup_flags == SymbolLookupFlags::RequiredSymbol => missing.push(name.clone()),
                None => {}
            }
        }
        match missing.is_empty() {
            true => Ok(Answer::of_flags(found)),
            false => Err(self.not_found(missing, search)),
        }
    }
}
