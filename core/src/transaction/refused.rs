//! A refused transaction, and why it was refused.

use std::error::Error;
use std::fmt;

use crate::sync::Arc;
use crate::{DefineError, DylibError, RemoveError};

use super::Transaction;

/// A transaction that changed nothing, with all that it was made of.
///
/// Drop it, and the units are dropped here and now; or commit the transaction again once the reason is gone.
pub struct RefusedTransaction {
    /// The transaction as it was. Its units have not been touched.
    pub transaction: Transaction,
    /// Which step was refused, and why.
    pub error: TransactionError,
}

/// Why a transaction was refused. Nothing has changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// A definition was refused.
    #[error("step {step} of the transaction was refused, and nothing was changed")]
    Define {
        /// Which step, from 0.
        step: usize,
        /// Why.
        source: DefineError,
    },
    /// A removal was refused.
    #[error("step {step} of the transaction was refused, and nothing was changed")]
    Remove {
        /// Which step, from 0.
        step: usize,
        /// Why.
        source: RemoveError,
    },
    /// A change of a link order was refused.
    #[error("step {step} of the transaction was refused, and nothing was changed")]
    LinkOrder {
        /// Which step, from 0.
        step: usize,
        /// Why.
        source: DylibError,
    },
    /// A step names a dylib of another session.
    #[error(
        "step {step} of the transaction was refused, and nothing was changed: dylib `{dylib}` belongs to another session"
    )]
    Foreign {
        /// Which step, from 0.
        step: usize,
        /// The dylib.
        dylib: Arc<str>,
    },
}

impl fmt::Debug for RefusedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedTransaction")
            .field("error", &self.error)
            .field("transaction", &self.transaction)
            .finish()
    }
}

impl fmt::Display for RefusedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for RefusedTransaction {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl From<RefusedTransaction> for TransactionError {
    fn from(refused: RefusedTransaction) -> Self {
        refused.error
    }
}
