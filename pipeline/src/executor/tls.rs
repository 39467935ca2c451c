//! Thread-local variables, as a linker and the place where code runs speak of them.

use std::ffi::c_int;
use std::{fmt, io};

use uruk_core::ExecutorAddr;

/// Initial values of a graph's thread-local variables, as `__tls_get_addr` needs them for a new thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsImage {
    /// Where the initial values are; written when the link is fixed.
    pub address: ExecutorAddr,
    /// How many bytes of initial values there are.
    pub image_bytes: u64,
    /// Size of a thread's copy; zeros follow the initial values.
    pub total_bytes: u64,
    /// Alignment of a thread's copy.
    pub align: u64,
}

/// Where in the process's thread-local storage something is: the two words of a `tls_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsPlacement {
    /// The module's number, as `__tls_get_addr` takes it.
    pub module: u64,
    /// The offset in the module's block.
    pub offset: u64,
}

/// The thread-local variables of an object, before they have a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsShape {
    /// How many bytes of initial values there are.
    pub image_bytes: u64,
    /// Size of a thread's copy.
    pub total_bytes: u64,
    /// Alignment of a thread's copy.
    pub align: u64,
    /// Whether the object needs its variables at the same distance from every thread's pointer. Others get such a place while there is room.
    pub needs_static: bool,
}

/// Room for an object's thread-local variables. Dropping it gives the room back.
#[must_use = "dropping it gives the room back"]
pub struct TlsReservation {
    placement: TlsPlacement,
    held: Box<dyn HeldTls>,
}

/// The holder of such room, implemented by each [`Executor`](super::Executor).
pub trait HeldTls: Send + Sync {
    /// Gives threads, those to come too, their initial values from `image`, which is final and stays until this is dropped.
    fn initialize(&self, image: TlsImage);
}

impl TlsReservation {
    /// Room at `placement` until `held` is dropped.
    pub fn new(placement: TlsPlacement, held: Box<dyn HeldTls>) -> Self {
        Self { placement, held }
    }

    /// Where it is.
    pub fn placement(&self) -> TlsPlacement {
        self.placement
    }

    /// See [`HeldTls::initialize`].
    pub fn initialize(&self, image: TlsImage) {
        self.held.initialize(image);
    }
}

impl fmt::Debug for TlsReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsReservation").field(&self.placement).finish()
    }
}

/// The functions behind TLS descriptors, for linked code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsResolvers {
    /// For variables at the same distance on every thread.
    pub fixed: ExecutorAddr,
    /// For all others.
    pub dynamic: ExecutorAddr,
    /// For weak references to nothing.
    pub absent: ExecutorAddr,
}

/// Why a variable is not at the same distance from the thread pointer on every thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStatic {
    /// Its object's block is allocated for each thread when that first touches it, as there is no reserve in this process.
    NoReserve,
    /// As [`NotStatic::NoReserve`], because the object's variables did not fit into the reserve.
    ReserveFull {
        /// How much of the reserve is free.
        free_bytes: usize,
        /// How large the reserve is.
        reserve_bytes: usize,
    },
    /// It is a library's that was loaded when the process ran already.
    LoadedLater,
    /// It is a library's, and the thread on which that could be found out was refused.
    NoThread {
        /// The system's error number.
        code: c_int,
    },
    /// Its owner is not known.
    Unknown,
}

impl fmt::Display for NotStatic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReserve => f.write_str(
                "this process keeps no room for it at such a distance (the `uruk` command does; see `export_tls_reserve!`)",
            ),
            Self::ReserveFull { free_bytes, reserve_bytes } => write!(
                f,
                "the object that defines it found no room in the reserve for that, of whose {reserve_bytes} bytes \
                 {free_bytes} are free (half of it is kept for objects that use such distances themselves)"
            ),
            Self::LoadedLater => {
                f.write_str("it belongs to a library that was loaded when the process ran already")
            }
            Self::NoThread { code } => write!(
                f,
                "it belongs to a library, and the thread that would show whether it is at such a distance was refused: {}; \
                 end other threads, or allow the process more",
                io::Error::from_raw_os_error(*code)
            ),
            Self::Unknown => f.write_str("nobody knows the module that it belongs to"),
        }
    }
}

/// Why a module could not get a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The sizes contradict each other.
    #[error(
        "invalid thread-local image: {image_bytes} bytes of contents in a block of {total_bytes}, alignment {align}"
    )]
    Invalid {
        /// Bytes of contents.
        image_bytes: usize,
        /// Bytes of the block.
        total_bytes: usize,
        /// Its alignment.
        align: usize,
    },
    /// The system has no room to note what forks have to do.
    #[error("cannot register what has to be done when the process forks: {}", io::Error::from_raw_os_error(*code))]
    Watch {
        /// Its error number.
        code: c_int,
    },
    /// Every slot is taken.
    #[error("{limit} modules with thread-local variables are alive; no more are possible")]
    Exhausted {
        /// How many there can be.
        limit: usize,
    },
    /// Another process has given a number that cannot be.
    #[error("{number:#x} is not the number of a new module, nor room in the reserve")]
    Foreign {
        /// The number.
        number: u64,
    },
}
