#![doc = include_str!("README.md")]

mod frame;
mod gate;
mod routes;
mod serve;
mod store;
mod unit;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use uruk_core::sync::{Arc, thread};
use uruk_recorder::{EnableError, OpenError, Reader};

use self::store::Feed;
use crate::jit::Jit;

/// Where a dashboard listens, and who may look.
///
/// # Examples
/// ```
/// use uruk::dashboard::DashboardOptions;
///
/// let here = DashboardOptions::at("127.0.0.1:0");
/// let everywhere = DashboardOptions::at("0.0.0.0:7070").token("a long random text").host("build.example.com");
/// # drop((here, everywhere));
/// ```
#[derive(Clone)]
#[must_use]
pub struct DashboardOptions {
    address: String,
    token: Option<String>,
    hosts: Vec<String>,
}

impl DashboardOptions {
    /// An address and a port, such as `127.0.0.1:7070`. Port 0 takes a free one.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None, hosts: Vec::new() }
    }

    /// The secret that every request has to show: the page by `/?token=…`, which a cookie then replaces; programs by
    /// `Authorization: Bearer …`. An address that other machines reach demands one.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// A name by which the page may be asked for. Addresses and `localhost` always may: no name server can point them elsewhere. Repeatable.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into());
        self
    }
}

impl Default for DashboardOptions {
    /// A free port of this machine, which no other machine reaches.
    fn default() -> Self {
        Self::at("127.0.0.1:0")
    }
}

impl From<SocketAddr> for DashboardOptions {
    fn from(address: SocketAddr) -> Self {
        Self::at(address.to_string())
    }
}

impl From<&str> for DashboardOptions {
    fn from(address: &str) -> Self {
        Self::at(address)
    }
}

impl fmt::Debug for DashboardOptions {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardOptions")
            .field("address", &self.address)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// Why a dashboard cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The address is none.
    #[error("`{address}` is no address to listen at; an address and a port are: 127.0.0.1:7070")]
    Address {
        /// The text.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Other machines reach the address, and there is no token.
    #[error(
        "other machines reach {address}, so the dashboard there needs a token of {TOKEN_BYTES_MIN} characters at least; or listen at 127.0.0.1"
    )]
    NoToken {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not let the process listen there.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The thread of the server could not be started.
    #[error("cannot start the thread of the dashboard")]
    Thread(#[source] io::Error),
    /// The recorder cannot begin.
    #[error("nothing can be noted in this process")]
    Recorder(#[source] EnableError),
    /// A forked child notes nothing.
    #[error("nothing is noted in this process; a forked child has no recorder")]
    NoRecorder,
    /// The file is no recording.
    #[error("{}: cannot be shown", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
}

/// The shortest token that is taken: one that is guessed is none.
const TOKEN_BYTES_MIN: usize = 16;

/// A page that shows what the recorder of this process notes, or what a file has of another process. It ends when it is dropped.
///
/// # Concurrency
/// One thread serves and reads notes; no thread of the engine waits for it. A client that reads slowly loses notes, and is told how many.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let jit = uruk::Jit::builder().threads(1).build()?;
/// let dashboard = jit.dashboard("127.0.0.1:0")?;
/// println!("see {}", dashboard.url());
/// # Ok(())
/// # }
/// ```
pub struct Dashboard {
    address: SocketAddr,
    url: String,
    end: Option<serve::End>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Dashboard {
    /// Shows what a file has that a recorder has written, or writes.
    ///
    /// # Errors
    /// [`DashboardError`].
    pub fn of_file(path: &Path, options: impl Into<DashboardOptions>) -> Result<Self, DashboardError> {
        let reader = Reader::open(path)
            .map_err(|source| DashboardError::Recording { path: path.to_owned(), source })?;
        Self::start(Feed::new(reader, false), None, options.into())
    }

    /// Shows what this process notes, and answers questions about symbols and units of an engine.
    fn of_engine(jit: &Jit, options: DashboardOptions) -> Result<Self, DashboardError> {
        if !uruk_recorder::is_on() {
            uruk_recorder::enable(uruk_recorder::Options::default()).map_err(DashboardError::Recorder)?;
        }
        let reader = Reader::new().ok_or(DashboardError::NoRecorder)?;
        Self::start(Feed::new(reader, true), Some(unit::Asked::of(jit)), options)
    }

    fn start(
        feed: Feed,
        asked: Option<unit::Asked>,
        options: DashboardOptions,
    ) -> Result<Self, DashboardError> {
        let DashboardOptions { address, token, hosts } = options;
        let mut resolved = address
            .to_socket_addrs()
            .map_err(|source| DashboardError::Address { address: address.clone(), source })?;
        let wanted = resolved.next().ok_or_else(|| DashboardError::Address {
            address: address.clone(),
            source: io::ErrorKind::AddrNotAvailable.into(),
        })?;
        let is_guarded = token.as_ref().is_some_and(|token| token.len() >= TOKEN_BYTES_MIN);
        if !is_guarded && (token.is_some() || !wanted.ip().is_loopback()) {
            return Err(DashboardError::NoToken { address: wanted });
        }
        let listen = |source| DashboardError::Listen { address: wanted, source };
        let listener = std::net::TcpListener::bind(wanted).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let url = match &token {
            None => format!("http://{address}/"),
            Some(token) => format!("http://{address}/?token={}", gate::escaped(token)),
        };
        let gate = gate::Gate::new(token.as_deref(), hosts);
        let (end, ended) = serve::End::pair();
        let shown = Arc::new(routes::Shown::new(feed, asked));
        let thread = thread::Builder::new()
            .name("uruk-dashboard".to_owned())
            .spawn(move || serve::serve(listener, shown, gate, ended))
            .map_err(DashboardError::Thread)?;
        Ok(Self { address, url, end: Some(end), thread: Some(thread) })
    }

    /// The address that it listens at, with the port that was free.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The page's address, with the token if there is one.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Jit {
    /// Shows what this process notes on a page, until the dashboard is dropped. Notes are taken from here on.
    ///
    /// # Errors
    /// [`DashboardError`]: an address that other machines reach needs a [token](DashboardOptions::token).
    pub fn dashboard(&self, options: impl Into<DashboardOptions>) -> Result<Dashboard, DashboardError> {
        Dashboard::of_engine(self, options.into())
    }
}

impl Drop for Dashboard {
    /// Closes every connection and waits for the thread.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its hook, and concerns no caller.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("address", &self.address).finish_non_exhaustive()
    }
}
