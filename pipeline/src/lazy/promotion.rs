//! Functions that may be compiled better once they are called often.

use std::any::Any;
use std::sync::OnceLock;

use uruk_core::SymbolName;
use uruk_core::sync::atomic::{AtomicU32, Ordering};
use uruk_core::sync::{Arc, Weak};

use super::function::LazyFunction;
use crate::runtime::call_through::{Cells, Destination};
use crate::tiers::{Improve, Promote, PromotionEnd, PromotionOrder, Tiers};

/// Shared by the functions of one unit.
pub(super) struct Improving {
    pub(super) improve: Arc<dyn Improve>,
    cells: OnceLock<Weak<[Box<dyn Destination>]>>,
}

impl Improving {
    pub(super) fn new(improve: Arc<dyn Improve>) -> Arc<Self> {
        Arc::new(Self { improve, cells: OnceLock::new() })
    }

    /// Notes where the functions are; once.
    pub(super) fn are_at(&self, cells: &Cells) {
        self.cells.get_or_init(|| Arc::downgrade(cells));
    }

    /// How many calls of `body`, which was compiled, are counted.
    pub(super) fn calls_of(&self, body: &SymbolName) -> Option<u32> {
        let tiers = self.improve.tiers();
        (tiers.is_on() && self.improve.is_improvable(body)).then(|| tiers.threshold())
    }
}

/// One function that waits for the promoter.
pub(super) struct Promotion {
    improving: Arc<Improving>,
    number: u32,
    failures: AtomicU32,
}

impl Promotion {
    pub(super) fn new(improving: Arc<Improving>, number: u32) -> Self {
        Self { improving, number, failures: AtomicU32::new(0) }
    }

    /// Has the function improved at once, if its body asks for that.
    pub(super) fn improve_if_urgent(self: &Arc<Self>, body: &SymbolName) {
        let Improving { improve, .. } = &*self.improving;
        if improve.is_urgent(body) {
            improve.tiers().promote_soon(self.clone());
        }
    }

    pub(super) fn improving(&self) -> &Improving {
        &self.improving
    }
}

impl Promote for Promotion {
    fn promote(&self, tiers: &Tiers, is_allowed: bool) -> PromotionEnd {
        let Some(cells) = self.improving.cells.get().and_then(Weak::upgrade) else {
            return PromotionEnd::Gone;
        };
        let cell: &dyn Any = &*cells[self.number as usize];
        let Some(function) = cell.downcast_ref::<LazyFunction>() else { return PromotionEnd::Gone };
        let failures = self.failures.load(Ordering::Relaxed); // the promoter's alone
        let number = failures + 1;
        let order = if is_allowed {
            let after_failure = tiers.policy().after_failure(number);
            PromotionOrder::Attempt { number, after_failure, uses_pool: tiers.uses_pool() }
        } else {
            PromotionOrder::CountNoMore
        };
        let end = function.promote(&cells, &*self.improving.improve, order);
        if end == PromotionEnd::Failed {
            self.failures.store(number, Ordering::Relaxed); // as above
        }
        end
    }
}
