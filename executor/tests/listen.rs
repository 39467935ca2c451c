//! `uruk-executor --listen`, as its users start it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use uruk_pipeline::remote::{ExecutorAddress, RemoteError, RemoteExecutor};

/// The program, on a socket of its own.
struct Listener {
    process: Child,
    path: PathBuf,
}

impl Listener {
    /// It may have so many descriptors.
    fn start(name: &str, descriptors: u32) -> Self {
        Self::start_for(name, descriptors, 1_000)
    }

    /// And serve so many hosts at a time.
    fn start_for(name: &str, descriptors: u32, count: usize) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let script = format!("ulimit -n {descriptors}; exec \"$0\" --listen \"unix:$1\" --count {count}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_uruk-executor")]).arg(&path);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let said = process.stdout.take().expect("a pipe");
        BufReader::new(said).read_line(&mut line).expect("it says where it listens");
        assert_eq!(line, format!("listening at unix:{}\n", path.display()));
        Self { process, path }
    }

    fn reach(&self) -> Result<RemoteExecutor, RemoteError> {
        RemoteExecutor::connect(ExecutorAddress::Unix(self.path.clone()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A test that has failed leaves no process.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn each_host_has_a_process_of_its_own() {
    let listener = Listener::start("each", 256);
    let [first, second] = [listener.reach(), listener.reach()].map(|reached| reached.expect("an executor"));
    assert_ne!(first.pid(), second.pid());
    for executor in [&first, &second] {
        let found = executor.find(&["getpid", "no such function"]).expect("it answers");
        let getpid = found[0].expect("of its C library").address;
        assert!(found[1].is_none());
        assert_eq!(executor.call::<u32>(getpid, ()).expect("it returns"), executor.pid());
    }
}

/// More hosts than it has descriptors for do not end it, nor the executors of others.
#[test]
fn a_listener_that_cannot_serve_a_host_serves_others() {
    let mut listener = Listener::start("many", 48);
    let first = listener.reach().expect("an executor");
    let silent: Vec<_> = (0..60).map(|_| UnixStream::connect(&listener.path).expect("it listens")).collect();
    drop(silent);
    // Until it has heard of these ends, it may let another host go.
    let later = (0..200).find_map(|_| listener.reach().ok()).expect("it has descriptors again");
    assert!(first.find(&["getpid"]).is_ok() && later.find(&["getpid"]).is_ok());
    assert!(listener.process.try_wait().expect("it is a child").is_none(), "it runs on");
}

#[test]
fn a_host_beyond_the_count_is_refused_until_one_has_gone() {
    let listener = Listener::start_for("count", 256, 1);
    let first = listener.reach().expect("an executor");
    for _ in 0..3 {
        let RemoteError::Connect { source, .. } = listener.reach().expect_err("it serves one already") else {
            panic!("it is told on connecting")
        };
        assert_eq!(source.to_string(), "it serves 1 hosts already, and no more");
    }
    assert!(first.find(&["getpid"]).is_ok());
    drop(first);
    let next = (0..200).find_map(|_| listener.reach().ok()).expect("there is room again");
    assert!(next.find(&["getpid"]).is_ok());
}
