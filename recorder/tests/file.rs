//! One process records into a file: its threads come and go, a child is forked, and another reader has the file.

use std::process::Command;

use uruk_recorder::{EnableError, Entry, Kind, Options, Reader, disable, enable, note, static_name};

const THREADS: u64 = 40;

fn mark(number: u64) {
    note(|| Entry::new(Kind::Mark).named(static_name!("here")).with(number, 0));
}

fn numbers(reader: &mut Reader) -> Vec<u64> {
    let notes = reader.read().notes;
    notes.iter().filter(|(_, note)| note.kind == Kind::Mark).map(|(_, note)| note.a).collect()
}

#[test]
fn a_recording_in_a_file_has_all_threads_and_no_child() {
    let path = std::env::temp_dir().join(format!("uruk-recording-{}", std::process::id()));
    let options = || Options { ring_notes: 256, threads: 8, file: Some(path.clone()), ..Options::default() };
    mark(1000);
    assert!(Reader::new().is_none(), "off is off");
    enable(options()).unwrap();
    assert!(matches!(enable(Options::default()), Err(EnableError::Differs)));

    // More threads than rings, one after another: a ring goes to the next when its thread has ended.
    for number in 0..THREADS {
        std::thread::spawn(move || mark(number)).join().unwrap();
    }
    mark(THREADS);
    disable();
    mark(1001);
    enable(options()).unwrap();

    let (mut here, mut there) = (Reader::new().unwrap(), Reader::open(&path).unwrap());
    let expected: Vec<_> = (0..=THREADS).collect();
    assert_eq!((numbers(&mut here), numbers(&mut there)), (expected.clone(), expected));
    assert_eq!(there.process(), std::process::id());

    // A child has the memory, and writes nothing there.
    let child = fork(|| {
        mark(2000);
        assert!(matches!(enable(Options::default()), Err(EnableError::Differs)));
    });
    assert!(child);
    mark(2001);
    assert_eq!((numbers(&mut here), numbers(&mut there)), (vec![2001], vec![2001]));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_recording_is_read_after_its_process_was_killed() {
    let path = std::env::temp_dir().join(format!("uruk-killed-{}", std::process::id()));
    if let Some(path) = std::env::var_os("URUK_TEST_RECORD") {
        enable(Options { file: Some(path.into()), ..Options::default() }).unwrap();
        mark(7);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    let test = std::env::current_exe().unwrap();
    let ended = Command::new(test)
        .args(["--exact", "a_recording_is_read_after_its_process_was_killed"])
        .env("URUK_TEST_RECORD", &path)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(numbers(&mut reader), [7]);
    std::fs::remove_file(&path).unwrap();
}

/// Whether `child` ran in a child without a panic.
fn fork(child: impl FnOnce()) -> bool {
    // SAFETY: the child runs what is given and ends, without a return to the test harness.
    match unsafe { libc::fork() } {
        0 => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is this function's.
            unsafe { libc::waitpid(child, &mut status, 0) };
            status == 0
        }
    }
}
