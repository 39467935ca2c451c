//! A piece of linked code, as the place where it runs knows it.

use std::ops::Range;
use std::sync::Weak;

use uruk_core::sync::Arc;

/// Tells pieces of linked code apart. None comes twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeNumber(pub(crate) u64);

/// Stands for a dylib. Its code ends together, when the dylib is deinitialised.
#[derive(Clone, Debug, Default)]
pub struct Home(Arc<()>);

impl Home {
    /// Tells homes apart as long as they are there.
    #[cfg(feature = "helpers")]
    pub(crate) fn id(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }

    /// A handle that does not keep the home.
    pub fn downgrade(&self) -> WeakHome {
        WeakHome(Arc::downgrade(&self.0))
    }
}

impl PartialEq for Home {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A home, as long as there is code of it.
#[derive(Clone, Debug)]
pub struct WeakHome(Weak<()>);

impl WeakHome {
    /// The home, if there is code of it.
    pub fn upgrade(&self) -> Option<Home> {
        self.0.upgrade().map(Home)
    }
}

/// The dylib and the addresses of a piece of linked code.
#[derive(Debug)]
pub struct CodeExtent {
    /// The dylib it is part of.
    pub home: Home,
    /// Where it lies, its data included.
    pub ranges: Arc<[Range<u64>]>,
}
