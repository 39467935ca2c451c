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
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_nodelay};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, recv, shutdown, socket_with,
};

use super::address::ExecutorAddress;
use super::messages::{ENDED, ProcessEndThere};
use crate::peer::{Channel, Deadline, PeerProgram, ProcessEnd};

/// How long a host may take to close its side when its executor has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a listener waits when a host could not be served.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// So many hosts wait to be let in.
const BACKLOG: i32 = 128;

/// A socket on which executors are asked for.
///
/// All who can connect have their code run, with all rights of this process. They are not asked who they are, and nothing is encrypted. A socket among the files is made for its owner alone. A port has no
/// such limit: each user of the machine can connect to one of `localhost`.
#[derive(Debug)]
pub struct ExecutorListener {
    socket: ListeningSocket,
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
        Ok(Self { socket })
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
    pub fn serve(&self, program: &PeerProgram) -> io::Result<()> {
        loop {
            match self.accept().and_then(|connection| serve_beside(connection, program.clone())) {
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

/// A connection to the executor that listens at `address`.
pub(super) fn connect(address: &ExecutorAddress) -> io::Result<OwnedFd> {
    match address {
        ExecutorAddress::Unix(path) => Ok(UnixStream::connect(path)?.into()),
        ExecutorAddress::Tcp(place) => {
            let connection = TcpStream::connect(place.as_str())?.into();
            prepare(&connection)?;
            Ok(connection)
        }
    }
}

/// Messages are small and awaited; and a machine that is switched off says nothing.
fn prepare(connection: &OwnedFd) -> io::Result<()> {
    set_tcp_nodelay(connection, true)?;
    set_socket_keepalive(connection, true)?;
    Ok(())
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

fn serve_beside(connection: OwnedFd, program: PeerProgram) -> io::Result<()> {
    let serve = move || {
        // The host sees the end of its connection.
        let _ = serve_host(connection, &program);
    };
    uruk_core::sync::thread::Builder::new().name("uruk executor".to_owned()).spawn(serve).map(drop)
}

/// Has an executor serve a host, waits for its end, and tells the host.
fn serve_host(connection: OwnedFd, program: &PeerProgram) -> io::Result<()> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).stdin(connection.try_clone()?);
    let ended = command.spawn()?.wait();
    let mut channel = Channel::new(connection);
    let end = ProcessEndThere::from(ProcessEnd::of(ended));
    let body = postcard::to_stdvec(&end).expect("a vector takes everything");
    channel.send(ENDED, 0, &body, &[]).map_err(io::Error::other)?;
    // Were the connection closed while there are messages of the host, it could lose what the executor has sent.
    shutdown(channel.stream(), Shutdown::Write)?;
    let deadline = Deadline::after(PATIENCE);
    let mut rest = [0; 4 << 10];
    while !deadline.is_over() {
        let mut awaited = [PollFd::from_borrowed_fd(channel.stream(), PollFlags::IN)];
        let _ = poll(&mut awaited, deadline.left().as_ref());
        match recv(channel.stream(), &mut rest, RecvFlags::DONTWAIT) {
            Ok((0, _)) => break,
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
