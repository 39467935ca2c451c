//! Link orders as a graph, for those who start, stop or search dylibs together with what they depend on.

use crate::{DylibError, ExecutionSession, JitDylib};

impl ExecutionSession {
    /// Every dylib that searches beginning at `roots` may lead to, each once: a root, then depth first what its link
    /// order names.
    ///
    /// Link orders may share dylibs and form cycles.
    ///
    /// # Concurrency
    /// Callable from any thread; what is told was so at one moment.
    ///
    /// # Cost
    /// Linear in the dylibs and in their link orders, during one hold of the session's lock.
    ///
    /// # Errors
    /// If a root was removed or belongs to another session.
    ///
    /// ORC: `JITDylib::getDFSLinkOrder`.
    #[doc(alias = "getDFSLinkOrder")]
    pub fn dfs_link_order(&self, roots: &[JitDylib]) -> Result<Vec<JitDylib>, DylibError> {
        if let Some(foreign) = roots.iter().find(|root| root.session() != self) {
            return Err(DylibError::Foreign { name: foreign.shared_name() });
        }
        let ids: Vec<_> = roots.iter().map(JitDylib::id).collect();
        match self.transact(|state, _| state.definitions.dfs_link_order(&ids)) {
            Ok(order) => {
                Ok(order.into_iter().map(|(id, name)| JitDylib::new(self.clone(), id, name)).collect())
            }
            Err(position) => Err(DylibError::Removed { name: roots[position].shared_name() }),
        }
    }

    /// The same backwards: where link orders form no cycle, every dylib comes behind those it depends on.
    ///
    /// # Errors
    /// As [`ExecutionSession::dfs_link_order`].
    ///
    /// ORC: `JITDylib::getReverseDFSLinkOrder`.
    #[doc(alias = "getReverseDFSLinkOrder")]
    pub fn reverse_dfs_link_order(&self, roots: &[JitDylib]) -> Result<Vec<JitDylib>, DylibError> {
        let mut order = self.dfs_link_order(roots)?;
        order.reverse();
        Ok(order)
    }
}
