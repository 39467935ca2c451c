//! Orders of dylibs, as far as the entries ask of them.

use crate::ids::DylibId;
use crate::{JitDylibLookupFlags, SymbolFlags};

/// The dylibs that a lookup searches, first to last: all of one session, the one of the entries.
///
/// Each question but the first is answered without a walk over the dylibs.
pub(crate) trait DylibOrder {
    /// The dylibs, and what a lookup may see of each.
    fn dylibs(&self) -> impl Iterator<Item = (DylibId, JitDylibLookupFlags)>;

    /// Whether it is one dylib.
    fn is_single(&self) -> bool;

    /// The first position at which a definition in `dylib` is seen.
    fn position_of(&self, dylib: DylibId, flags: SymbolFlags) -> Option<usize>;

    /// The first position that generates (or a larger one if none does), if it is known as of this count of
    /// changes of the session's dylibs: what is found no further is certain. None of the dylibs was removed then.
    fn certain_until(&self, changes: u64) -> Option<usize>;

    /// Keeps what [`Self::certain_until`] tells.
    fn remember(&self, changes: u64, certain_until: usize);
}
