//! [`serve`]: the helper's side of the protocol.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::confine::{Needed, confine};
use super::messages::{ANSWER, AnswerHead, BEGUN, HELLO, Hello, JOB, PROTOCOL, READY, Ready};
use crate::peer::{Channel, ChannelError, PeerFrame, end_with_parent};

/// The work of a helper. All of it happens on the thread that serves.
pub trait Serving {
    /// Gets ready, before limits hold; says which compiler works here.
    ///
    /// # Errors
    /// Why there is none.
    fn prepare(&mut self) -> io::Result<String>;

    /// A message is about to be sent, or has come: for tests, which end the process then. Messages have the order of their numbers: 1, 2, then
    /// 3, 4, 5 for each job.
    fn on_message(&mut self, kind: u16) {
        let _ = kind;
    }

    /// A job has come, and is about to be begun.
    fn name(&mut self, job: &PeerFrame) {
        let _ = job;
    }

    /// Does a job; gives the body and the bulk of the answer.
    fn work(&mut self, job: PeerFrame) -> (Vec<u8>, Vec<u8>);

    /// Frees the remains of the last job. Called after its answer was sent.
    fn clean_up(&mut self) {}
}

/// Works for the process that has started this one with a channel as stdin, until that closes the channel or ends.
///
/// # Errors
/// Stdin is no channel of a [`HelperPool`](super::HelperPool), the pool speaks another protocol, or `serving` is not prepared.
pub fn serve(serving: &mut dyn Serving) -> io::Result<()> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut channel = Channel::new(stdin);
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let by_hand = |_| invalid("this is started by a host, not by hand: its stdin is no channel of helpers");
    let Some(hello) = next(&mut channel).map_err(by_hand)? else { return Ok(()) };
    let greeting: Hello = match hello.kind {
        HELLO => postcard::from_bytes(hello.body()).map_err(io::Error::other)?,
        _ => return Err(invalid("the host does not begin with a greeting")),
    };
    if greeting.protocol != PROTOCOL {
        return Err(invalid("the host is of another version"));
    }
    serving.on_message(HELLO);
    end_with_parent(&channel, Some(greeting.parent))?;
    let build = serving.prepare()?;
    let space = AddressSpace::open();
    let first_bytes = space.bytes();
    limit(greeting.memory_bytes, first_bytes);
    let unconfined = match greeting.confines {
        true => {
            let sizes = space.0.as_ref().map(File::as_fd);
            confine(Needed { channel: channel.stream(), sizes }).err().map(|error| error.to_string())
        }
        false => None,
    };
    let ready = Ready { protocol: PROTOCOL, build, unconfined };
    let ready = postcard::to_stdvec(&ready).map_err(io::Error::other)?;
    serving.on_message(READY);
    if !sent(channel.send(READY, 0, &ready, &[]))? {
        return Ok(());
    }
    while let Some(job) = next(&mut channel)? {
        if job.kind != JOB {
            return Err(invalid("the host sent what is no job"));
        }
        let id = job.id;
        serving.name(&job);
        serving.on_message(JOB);
        if !sent(channel.send(BEGUN, id, &[], &[]))? {
            break;
        }
        serving.on_message(BEGUN);
        let (answer, bulk) = serving.work(job);
        let grown_bytes = space.bytes().saturating_sub(first_bytes);
        let mut body = postcard::to_stdvec(&AnswerHead { grown_bytes }).map_err(io::Error::other)?;
        body.extend(answer);
        serving.on_message(ANSWER);
        if !sent(channel.send(ANSWER, id, &body, &bulk))? {
            break;
        }
        serving.clean_up();
    }
    Ok(())
}

/// The next message; nothing when the host has closed the channel.
fn next(channel: &mut Channel) -> io::Result<Option<PeerFrame>> {
    match channel.receive() {
        Ok(frame) => Ok(Some(frame)),
        Err(ChannelError::Closed) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Whether the host is still there.
fn sent(sent: Result<(), ChannelError>) -> io::Result<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(ChannelError::Closed) => Ok(false),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Limits this process: so much memory beyond what it has, no files besides those that it has, no core. Where the system refuses a limit, the
/// others hold.
fn limit(memory_bytes: Option<u64>, first_bytes: u64) {
    let set = |resource, value| {
        let limits = getrlimit(resource);
        let value = limits.maximum.map_or(value, |maximum: u64| maximum.min(value));
        let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    };
    set(Resource::Core, 0);
    set(Resource::Fsize, 0);
    // Descriptors that are open stay open. `poll` takes no more than this either.
    set(Resource::Nofile, 3);
    if let Some(memory_bytes) = memory_bytes {
        set(Resource::As, first_bytes.saturating_add(memory_bytes));
    }
}

/// The system's file of this process's sizes, opened before the limits hold.
struct AddressSpace(Option<File>);

impl AddressSpace {
    fn open() -> Self {
        Self(File::open("/proc/self/statm").ok())
    }

    /// Its size; 0 where the system does not say.
    fn bytes(&self) -> u64 {
        let mut text = [0; 32];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let pages = std::str::from_utf8(&text[..read])
            .ok()
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        pages.unwrap_or(0) * rustix::param::page_size() as u64
    }
}
