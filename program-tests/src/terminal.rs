//! A process on a terminal of its own: a test types, and waits for what is printed.
//!
//! **Never** does it sleep: it waits for output, and gives up after ten minutes: only a hang takes so long.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// How long output is waited for.
const LIMIT: Duration = Duration::from_secs(600);

/// An editor asks the terminal where the cursor is, and does not go on before it is told.
const ASKS_FOR_CURSOR: &[u8] = b"\x1b[6n";
const CURSOR: &[u8] = b"\x1b[20;1R";

/// A process and its terminal. Dropping it kills the process.
#[derive(Debug)]
pub struct Terminal {
    /// The process.
    pub child: Child,
    screen: File,
    /// Output that was not waited for yet.
    printed: Vec<u8>,
    /// Typed text that was not taken yet.
    typed: Vec<u8>,
}

impl Terminal {
    /// Starts a process whose terminal has 24 lines of 80 characters.
    ///
    /// # Errors
    /// The system's, if there is no terminal to be had or the process cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&screen)?;
        unlockpt(&screen)?;
        let inside =
            ioctl_tiocgptpeer(&screen, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        tcsetwinsize(&inside, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        let stdio = |end: &OwnedFd| end.try_clone().map(Stdio::from);
        command.stdin(stdio(&inside)?).stdout(stdio(&inside)?).stderr(stdio(&inside)?);
        command.env("TERM", "xterm-256color");
        let own_terminal = || {
            setsid()?;
            Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
        };
        // SAFETY: between `fork` and `exec` it makes two system calls, and allocates nothing.
        unsafe { command.pre_exec(own_terminal) };
        let child = command.spawn()?;
        rustix::io::ioctl_fionbio(&screen, true)?;
        Ok(Self { child, screen: screen.into(), printed: Vec::new(), typed: Vec::new() })
    }

    /// Types a text. It is taken while output is waited for.
    pub fn types(&mut self, text: &str) {
        self.typed.extend(text.as_bytes());
    }

    /// Waits until `text` has been printed; what was printed up to its end.
    ///
    /// # Panics
    /// If it is not printed within ten minutes, or the process ends without it.
    #[track_caller]
    pub fn waits_for(&mut self, text: &str) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            let found = self.printed.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let rest = self.printed.split_off(at + text.len());
                return String::from_utf8_lossy(&std::mem::replace(&mut self.printed, rest)).into_owned();
            }
            let goes_on = self.exchange(until).expect("the terminal is there");
            assert!(goes_on, "`{text}` was not printed, but:\n{}", String::from_utf8_lossy(&self.printed));
        }
    }

    /// Waits until the process ends.
    ///
    /// # Panics
    /// If it goes on for ten minutes.
    pub fn ends(&mut self) -> ExitStatus {
        let until = Instant::now() + LIMIT;
        while self.exchange(until).expect("the terminal is there") {}
        assert!(Instant::now() < until, "it goes on: {}", String::from_utf8_lossy(&self.printed));
        self.child.wait().expect("it ends")
    }

    /// Lets the process take what was typed, and takes what it prints. Whether there may be more.
    fn exchange(&mut self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return Ok(false) };
        let wanted = if self.typed.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut ready = [PollFd::new(&self.screen, wanted)];
        if left.is_zero() || poll(&mut ready, Some(&timeout))? == 0 {
            return Ok(false);
        }
        let ready = ready[0].revents();
        if ready.contains(PollFlags::OUT) {
            let taken = self.screen.write(&self.typed).or_else(none_if_it_would_block)?;
            self.typed.drain(..taken);
        }
        if !ready.intersects(PollFlags::IN | PollFlags::HUP) {
            return Ok(true);
        }
        let mut bytes = [0; 4096];
        match self.screen.read(&mut bytes).or_else(none_if_it_would_block) {
            // The process is gone.
            Err(_) => return Ok(false),
            Ok(count) => self.printed.extend(&bytes[..count]),
        }
        while let Some(at) =
            self.printed.windows(ASKS_FOR_CURSOR.len()).position(|asks| asks == ASKS_FOR_CURSOR)
        {
            self.printed.drain(at..at + ASKS_FOR_CURSOR.len());
            self.typed.extend(CURSOR);
        }
        Ok(true)
    }
}

fn none_if_it_would_block(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
