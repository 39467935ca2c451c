//! [`ExecutorListener`]: hosts connect to it, and each gets a process of its own.
//!
//! ```text
//!   host ── connects ─▶ listener: a thread for each connection
//!     │                    │ starts the executor, whose stdin is the connection
//!     │                    ▼
//!     └── messages ──▶ executor ── ends ─▶ the thread: a message that tells how
//! ```

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};

use super::address::ExecutorAddress;
use super::attend::{refuse_host, serve_host};
use super::dial::prepare;
use crate::peer::PeerProgram;

/// How long a listener waits when a host could not be served.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// So many hosts are served at a time.
const HOSTS_MAX: usize = 64;

/// So many hosts wait to be let in.
const BACKLOG: i32 = 128;

/// A socket on which executors are asked for.
///
/// All who can connect have their code run, with all rights of this process. They are not asked who they are, and nothing is encrypted. A socket among the files is made for its owner alone. A port has no
/// such limit: each user of the machine can connect to one of `localhost`.
#[derive(Debug)]
pub struct ExecutorListener {
    socket: ListeningSocket,
    hosts_max: usize,
}

#[derive(Debug)]
enum ListeningSocket {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl ExecutorListener {
    /// Listens at `address`. A socket among the files that no process listens on any more is replaced.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: &ExecutorAddress) -> io::Result<Self> {
        let socket = match address {
            ExecutorAddress::Unix(path) => ListeningSocket::Unix(bind_for_owner(path)?, path.clone()),
            ExecutorAddress::Tcp(place) => ListeningSocket::Tcp(TcpListener::bind(place.as_str())?),
        };
        Ok(Self { socket, hosts_max: HOSTS_MAX })
    }

    /// How many hosts are served at a time; 64, unless this says otherwise. Another one is told so, and has no executor. Zero counts as one.
    #[must_use]
    pub fn count(mut self, hosts: usize) -> Self {
        self.hosts_max = hosts.max(1);
        self
    }

    /// Where it listens: a port that was given as 0 is the one that the system has chosen.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<ExecutorAddress> {
        Ok(match &self.socket {
            ListeningSocket::Unix(_, path) => ExecutorAddress::Unix(path.clone()),
            ListeningSocket::Tcp(listener) => ExecutorAddress::Tcp(listener.local_addr()?.to_string()),
        })
    }

    /// Starts `program`, which calls [`serve_executor`](super::serve_executor), for each host that connects. Goes on for ever.
    ///
    /// # Errors
    /// The system's, if this is no listening socket any more. A host that cannot be served, for lack of descriptors or threads, is let go, and others
    /// can connect.
    ///
    /// # Concurrency
    /// A thread for each host, also for a second for one that is refused. An executor whose host is gone, or has closed its connection, is
    /// ended a second later if it has not ended by itself.
    pub fn serve(&self, program: &PeerProgram) -> io::Result<()> {
        let taken = Arc::new(AtomicUsize::new(0));
        loop {
            let served = self.accept().and_then(|connection| {
                let place = TakenPlace::take(&taken, self.hosts_max);
                serve_beside(connection, place, program.clone(), self.hosts_max)
            });
            match served {
                Ok(()) => {}
                Err(error) if is_lasting(&error) => return Err(error),
                // Those that are served may end meanwhile. An interruption makes it shorter.
                Err(_) => _ = poll(&mut [], Some(&PAUSE)),
            }
        }
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            ListeningSocket::Unix(listener, _) => Ok(listener.accept()?.0.into()),
            ListeningSocket::Tcp(listener) => {
                let connection = listener.accept()?.0.into();
                prepare(&connection)?;
                Ok(connection)
            }
        }
    }
}

impl Drop for ExecutorListener {
    fn drop(&mut self) {
        if let ListeningSocket::Unix(_, path) = &self.socket {
            // Another process may have taken it away.
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    let bind = || -> io::Result<UnixListener> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The file gets the mode that the socket has when it is bound. The mask of the process, which all threads share, stays.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket.into())
    };
    match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            fs::remove_file(path)?;
            bind()
        }
        bound => bound,
    }
}

/// Whether it is a socket at which no process listens. Another file is not ours to remove.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether the socket itself is wrong. Other errors are those of one connection, or of what the system has too little of at the moment.
fn is_lasting(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK))
}

/// Starts a thread for a connection, which has `place` until its executor has ended.
fn serve_beside(
    connection: OwnedFd,
    place: Option<TakenPlace>,
    program: PeerProgram,
    most: usize,
) -> io::Result<()> {
    let serve = move || {
        // The host sees the end of its connection.
        let _ = match &place {
            Some(_) => serve_host(connection, &program),
            None => refuse_host(connection, &format!("it serves {most} hosts already, and no more")),
        };
    };
    uruk_core::sync::thread::Builder::new().name("uruk executor".to_owned()).spawn(serve).map(drop)
}

/// A place for a host, until this is dropped.
struct TakenPlace(Arc<AtomicUsize>);

impl TakenPlace {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // Relaxed, here and below: a number, and nothing is read by it. One thread takes places.
        if taken.load(Ordering::Relaxed) >= most {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        Some(Self(taken.clone()))
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
