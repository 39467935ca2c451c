//! How a listener attends to a connection: it starts the executor, waits for its end or the host's, and tells the host.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;

use super::messages::{BROKEN, ENDED, ProcessEndThere};
use crate::peer::{Channel, Deadline, PeerProgram, ProcessEnd};

/// How long a host may take to read the last message and to close its side; and an executor whose host is gone, to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has an executor serve a host, waits for its end, and tells the host.
pub(super) fn serve_host(connection: OwnedFd, program: &PeerProgram) -> io::Result<()> {
    let host = process_at(&connection);
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).stdin(connection.try_clone()?);
    let ended = wait_for_end(&mut command.spawn()?, &connection, host.as_ref());
    let end = ProcessEndThere::from(ProcessEnd::of(ended));
    say_farewell(connection, ENDED, &end)
}

/// Tells a host why it is not served.
pub(super) fn refuse_host(connection: OwnedFd, why: &str) -> io::Result<()> {
    say_farewell(connection, BROKEN, &why)
}

/// The host's process where a socket says which that is: on this machine.
///
/// A child of the host has the connection too, and keeps it open.
fn process_at(connection: &OwnedFd) -> Option<OwnedFd> {
    let host = socket_peercred(connection).ok()?.pid;
    pidfd_open(host, PidfdFlags::empty()).ok()
}

/// Waits for the end of an executor. If its host is gone first, it has a moment to end by itself.
fn wait_for_end(
    executor: &mut Child,
    connection: &OwnedFd,
    host: Option<&OwnedFd>,
) -> io::Result<ExitStatus> {
    let Ok(ended) = pidfd_open(Pid::from_child(executor), PidfdFlags::empty()) else {
        return executor.wait();
    };
    loop {
        let mut awaited = vec![PollFd::new(&ended, PollFlags::IN), PollFd::new(connection, PollFlags::RDHUP)];
        awaited.extend(host.map(|host| PollFd::new(host, PollFlags::IN)));
        match poll(&mut awaited, None) {
            Err(Errno::INTR) => continue,
            Ok(_) if awaited[0].revents().is_empty() => break,
            _ => return executor.wait(),
        }
    }
    // It learns of that as of an end of the connection, which a child of the host may hold open.
    let _ = shutdown(connection, Shutdown::Both);
    let deadline = Deadline::after(PATIENCE);
    if deadline.wait_for(ended.as_fd(), PollFlags::IN).is_err() {
        executor.kill()?;
    }
    executor.wait()
}

/// Sends the last message of a connection.
fn say_farewell(connection: OwnedFd, kind: u16, body: &impl Serialize) -> io::Result<()> {
    let mut channel = Channel::new(connection);
    let body = postcard::to_stdvec(body).expect("a vector takes everything");
    let deadline = Deadline::after(PATIENCE);
    let mut wait = |stream: BorrowedFd<'_>, until| deadline.wait_for(stream, until);
    channel.send_while(kind, 0, &body, &[], &mut wait).map_err(io::Error::other)?;
    // Were the connection closed while there are messages of the host, it could lose what was sent.
    shutdown(channel.stream(), Shutdown::Write)?;
    let deadline = Deadline::after(PATIENCE);
    let mut rest = [0; 4 << 10];
    while !deadline.is_over() {
        let mut awaited = [PollFd::from_borrowed_fd(channel.stream(), PollFlags::IN)];
        let _ = poll(&mut awaited, deadline.left().as_ref());
        match recv(channel.stream(), &mut rest, RecvFlags::DONTWAIT) {
            Ok((0, _)) => break,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
