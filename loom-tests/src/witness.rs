//! Witness: a resource that reports its fate.

use std::error::Error;

use uruk_core::Resource;
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};

/// Makes one resource, and knows how often that was removed and dropped.
#[derive(Debug, Default)]
pub struct Witness {
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    removed: AtomicUsize,
    dropped: AtomicUsize,
}

struct Witnessed(Arc<Told>);

impl Witness {
    /// The resource.
    pub fn resource(&self) -> Box<dyn Resource> {
        Box::new(Witnessed(self.told.clone()))
    }

    /// How often it was removed.
    pub fn removed(&self) -> usize {
        // Relaxed, here and below: read by threads that were told of the removal.
        self.told.removed.load(Ordering::Relaxed)
    }

    /// How often it was dropped, which removing it does too.
    pub fn dropped(&self) -> usize {
        self.told.dropped.load(Ordering::Relaxed)
    }
}

impl Resource for Witnessed {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Witnessed {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
