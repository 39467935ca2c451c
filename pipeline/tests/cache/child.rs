//! Work of tests in processes of their own: this binary again, with its task in its environment.

use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use uruk_pipeline::cache::{
    Access, CompileCache, DiskCache, ObjectCache, Origin, Pack, PackLimits, WriteError,
};

use super::{key, object, payload};

/// The prefix of a child's messages, which the test harness mixes with its own.
const SAYS: &str = "child: ";

/// A process of this binary. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    says: BufReader<ChildStdout>,
}

/// The command that plays `role` on the cache in `directory`, begun by `wrapper`, if there is one.
pub(crate) fn command(wrapper: &[&str], role: &str, directory: &Path, number: u64) -> Command {
    let binary = std::env::current_exe().expect("the running test");
    let mut command = match wrapper {
        [] => Command::new(&binary),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&binary);
            command
        }
    };
    command.args(["--exact", "child::plays_its_role", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("URUK_CACHE_ROLE", role).env("URUK_CACHE_DIRECTORY", directory);
    command.env("URUK_CACHE_NUMBER", number.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

impl Process {
    pub(crate) fn start(wrapper: &[&str], role: &str, directory: &Path, number: u64) -> Self {
        let mut command = command(wrapper, role, directory, number);
        let mut child = command.process_group(0).spawn().expect("this binary again");
        let says = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, says }
    }

    /// Its next message; nothing once it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.says.read_line(&mut line).expect("a pipe") == 0 || !line.ends_with('\n') {
                return None;
            }
            // The harness does not end its own line before a test runs.
            if let Some((_, said)) = line.trim_end().split_once(SAYS) {
                return Some(said.to_owned());
            }
        }
    }

    /// Tells it something, for which it has waited.
    pub(crate) fn say(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{text}").expect("it listens");
    }

    /// With all that it has started: a wrapper may be killed before it has said that its child is to go with it.
    pub(crate) fn kill(&mut self) {
        if self.child.try_wait().expect("it is ours").is_none() {
            kill_process_group(self.id(), Signal::KILL).expect("it is ours");
        }
        self.child.wait().expect("it is ours");
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a command can be run here.
pub(crate) fn works(command: &[&str]) -> bool {
    let status = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    status.is_ok_and(|output| output.status.success())
}

/// Says why a test has shown nothing.
pub(crate) fn skip(reason: &str) {
    writeln!(std::io::stderr(), "skipped: {reason}").expect("standard error");
}

fn say(text: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{SAYS}{text}").and_then(|()| out.flush()).expect("somebody listens");
}

#[test]
#[ignore = "is started by other tests, as a process of its own"]
fn plays_its_role() {
    let variable = |name| std::env::var(name).ok();
    let Some(role) = variable("URUK_CACHE_ROLE") else { return };
    let directory = variable("URUK_CACHE_DIRECTORY").expect("beside the role");
    let number =
        variable("URUK_CACHE_NUMBER").and_then(|number| number.parse().ok()).expect("beside the role");
    let directory = Path::new(&directory);
    match &*role {
        "writer" => write(directory, number, PackLimits::default()),
        "small writer" => write(directory, number, SMALL),
        "filler" => fill(directory),
        "holder" => hold(directory, number),
        "holder of many" => hold_many(directory, number),
        "member" => share(directory, number),
        "maker" => make(directory, number),
        "forks" => say(&super::queue::fork_while_it_writes(directory)),
        "retires" => say(&super::queue::retire(directory)),
        "refused" => write_where_it_is_refused(directory),
        _ => panic!("{role}?"),
    }
}

/// So small that generations come and go.
pub(crate) const SMALL: PackLimits = PackLimits { size_bytes: 1 << 20, age: Duration::from_secs(3600) };

/// Writes one entry after another, and says which are written.
fn write(directory: &Path, first: u64, limits: PackLimits) {
    let pack = Pack::open(directory, Access::ReadWrite, limits).expect("a directory of our own");
    for number in first.. {
        pack.put(&key(number), &payload(number)).expect("there is room");
        say(&number.to_string());
    }
}

/// Writes until it cannot, and says what it has written and why it stopped.
fn fill(directory: &Path) {
    let pack =
        Pack::open(directory, Access::ReadWrite, PackLimits::default()).expect("a directory of our own");
    for number in 0.. {
        if let Err(error) = pack.put(&key(number), &payload(number)) {
            assert!(matches!(error, WriteError::System(_)), "{error}");
            for written in 0..number {
                super::assert_stored(&pack, written);
            }
            assert!(pack.verify().bad.is_empty() && pack.stats().failed_writes == 1);
            say(&format!("{number} entries, then {error}"));
            return;
        }
    }
}

/// Has the claim on a key until its standard input ends.
fn hold(directory: &Path, number: u64) {
    let cache = DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    let _claim = cache.try_claim(&key(number)).expect("nobody has it");
    say("holds");
    let _ = stdin().read(&mut [0]);
}

/// Has the claims on many keys until it is told to go on. Then it stores what it was to make, and says how much was there.
fn hold_many(directory: &Path, count: u64) {
    let cache = DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    let claims: Vec<_> =
        (0..count).map(|number| cache.try_claim(&key(number)).expect("nobody has it")).collect();
    say("holds");
    let _ = stdin().read(&mut [0]);
    for (number, claim) in (0..count).zip(claims) {
        cache.put_claimed(&key(number), &object(number), claim);
    }
    cache.flush();
    let written = cache.pack().stats().written;
    say(&format!("{count} stored, {written} of them anew"));
}

/// Wants entries, and says how many of them it has made.
fn make(directory: &Path, count: u64) {
    let disk = DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    // However long the others are not let run.
    let cache = CompileCache::new(0, Some(Arc::new(disk))).waiting_at_most(Duration::from_secs(3600));
    let mut made = 0;
    for number in 0..count {
        let wait = |wait: &mut dyn FnMut()| {
            wait();
            true
        };
        let obtained =
            cache.get_or_make(&key(number), &wait, || Ok::<_, ()>(object(number))).expect("it is made");
        assert!(obtained.object.bytes() == payload(number));
        made += u64::from(matches!(obtained.origin, Origin::Made(_)));
    }
    cache.retire();
    say(&made.to_string());
}

/// Writes an entry, and says how many of those up to this one can be read.
fn share(directory: &Path, number: u64) {
    let pack = match Pack::open(directory, Access::ReadWrite, PackLimits::default()) {
        Ok(pack) => pack,
        Err(error) => return say(&error.to_string()),
    };
    if let Err(error) = pack.put(&key(number), &payload(number)) {
        return say(&error.to_string());
    }
    let read = (1..=number).filter(|number| pack.get(&key(*number)).is_ok()).count();
    say(&format!("{read} of {number}"));
}

/// Reads where nothing can be written, and says why not.
fn write_where_it_is_refused(directory: &Path) {
    let pack = Pack::open(directory, Access::ReadWrite, PackLimits::default()).expect("it can be read");
    super::assert_stored(&pack, 0);
    let error = pack.put(&key(1), &payload(1)).expect_err("it cannot be written");
    say(&error.to_string());
}
