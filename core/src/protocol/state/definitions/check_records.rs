//! What holds of the records that lookups without the lock read.

use crate::SymbolFlags;
use crate::protocol::state::payload::Payload;
use crate::protocol::storage::NONE;
use crate::record::SEVERAL_AGAIN;

use super::{Definitions, row::RowState};

impl<P: Payload> Definitions<P> {
    /// I13: exactly the names that are Ready somewhere have a record, which lists all their definitions; a name with
    /// many of them may keep it longer.
    pub(super) fn check_records(&self) {
        let (mut recorded, mut listed) = (0, 0);
        for first in self.names.iter() {
            let (mut rows, mut cursor) = (Vec::new(), first);
            while cursor != NONE {
                rows.push(self.rows.at(cursor));
                cursor = self.rows.at(cursor).namesakes.next;
            }
            listed += rows.len();
            let is_ready = rows.iter().any(|row| matches!(row.state, RowState::Ready { .. }));
            let Some(mut told) = self.records.recorded(&rows[0].name) else {
                assert!(!is_ready, "`{}` is Ready and has no record", rows[0].name);
                continue;
            };
            assert!(
                is_ready || rows.len() > SEVERAL_AGAIN,
                "`{}` is not Ready and has a record",
                rows[0].name
            );
            recorded += 1;
            rows.sort_unstable_by_key(|row| row.dylib);
            told.sort_unstable_by_key(|told| told.dylib);
            assert_eq!(told.len(), rows.len());
            for (told, row) in told.iter().zip(&rows) {
                let address = match row.state {
                    RowState::Ready { address } => Some(address),
                    _ => None,
                };
                assert_eq!((told.dylib, told.is_ready.then_some(told.address)), (row.dylib, address));
                assert_eq!(self.find(row.dylib, &row.name), Some(told.row));
                let exported = |flags: SymbolFlags| flags.contains(SymbolFlags::EXPORTED);
                assert_eq!(
                    exported(told.flags),
                    exported(row.flags),
                    "`{}` changed its visibility",
                    row.name
                );
            }
        }
        assert_eq!(listed, self.rows.len(), "each row is in the list of its name");
        assert!(recorded <= self.records.len());
    }

    /// I13: readers know which dylibs there are and which of them generate, and are refused when the session takes no
    /// lookups.
    pub(super) fn check_gate(&self, is_open: bool) {
        for (id, dylib) in self.dylibs.iter() {
            let generates = !dylib.generators.is_empty();
            assert_eq!(self.records.generates(id), Some(generates), "whether `{}` generates", dylib.name);
        }
        let (closed, removing) = self.records.refuses();
        assert_eq!(closed, !is_open, "readers know whether the session is open");
        assert!(!removing, "readers are refused though no row is left to be removed");
    }
}
