//! How a host connects to an executor that listens, and what both ends of a connection between machines set.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_keepalive, set_socket_timeout, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_nodelay, set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::address::ExecutorAddress;

/// After so long without a message, the system asks whether the other machine is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);

/// It asks so often, with so much time between two questions.
const KEEPALIVE_QUESTIONS: u32 = 3;
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(10);

/// The other machine is lost if it has not received for so long what was sent.
const UNRECEIVED_MS_MAX: u32 = 45_000;

/// A connection to the executor that listens at `address`.
///
/// # Errors
/// The system's, also if there is none within `limit`. Finding a machine by its name has the limits of the system.
pub(super) fn connect(address: &ExecutorAddress, limit: Duration) -> io::Result<OwnedFd> {
    match address {
        ExecutorAddress::Unix(path) => connect_here(path, limit),
        ExecutorAddress::Tcp(place) => {
            let connection = connect_there(place, limit)?.into();
            prepare(&connection)?;
            Ok(connection)
        }
    }
}

fn connect_here(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Where many wait already, connecting takes as long as sending may. Zero would be no limit.
    set_socket_timeout(&socket, Timeout::Send, Some(limit.max(Duration::from_millis(1))))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        Errno::AGAIN => late(limit),
        error => error.into(),
    })?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket)
}

/// A name may stand for several addresses. Each has the whole time: most often the first one answers.
fn connect_there(place: &str, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1))) {
            Ok(connection) => return Ok(connection),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => last = late(limit),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("there was no connection within {limit:?}"))
}

/// Messages are small and awaited; and a machine that is switched off says nothing.
pub(super) fn prepare(connection: &OwnedFd) -> io::Result<()> {
    set_tcp_nodelay(connection, true)?;
    set_socket_keepalive(connection, true)?;
    set_tcp_keepidle(connection, KEEPALIVE_AFTER)?;
    set_tcp_keepintvl(connection, KEEPALIVE_PAUSE)?;
    set_tcp_keepcnt(connection, KEEPALIVE_QUESTIONS)?;
    set_tcp_user_timeout(connection, UNRECEIVED_MS_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use rustix::net::sockopt::{socket_timeout, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout};

    use super::*;

    #[test]
    fn a_machine_that_is_lost_is_noticed_within_a_minute() {
        let listener = TcpListener::bind("localhost:0").expect("a port is free");
        let place = ExecutorAddress::Tcp(listener.local_addr().expect("it has one").to_string());
        let near = connect(&place, Duration::from_secs(10)).expect("it listens");
        let far: OwnedFd = listener.accept().expect("one has come").0.into();
        prepare(&far).expect("it is a connection");
        for end in [near, far] {
            let questions = tcp_keepcnt(&end).expect("it is set");
            let idle = tcp_keepidle(&end).expect("it is set");
            let silent = idle + tcp_keepintvl(&end).expect("it is set") * questions;
            assert!(silent < Duration::from_secs(60), "{silent:?}");
            let unreceived = tcp_user_timeout(&end).expect("it is set");
            assert!((1..60_000).contains(&unreceived), "{unreceived} ms");
        }
    }

    /// It lets few wait, and takes none.
    #[test]
    fn a_listener_that_takes_none_in_is_late() {
        let path = std::env::temp_dir().join(format!("uruk-full-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("it is free");
        rustix::net::listen(&listener, 0).expect("it listens");
        let address = ExecutorAddress::Unix(path.clone());
        let limit = Duration::from_millis(50);
        let first = connect(&address, limit).expect("one may wait");
        assert_eq!(socket_timeout(&first, Timeout::Send), Ok(None), "messages have limits of their own");
        let start = Instant::now();
        let error = connect(&address, limit).expect_err("there is no room");
        assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
        assert_eq!(error.to_string(), "there was no connection within 50ms");
        std::fs::remove_file(&path).expect("it is there");
    }
}
