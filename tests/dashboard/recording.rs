//! Recordings of schedules that never ran, whose picture is known.

use std::path::PathBuf;

use uruk::dashboard::Dashboard;
use uruk_recorder::{Entry, Kind, Script, ThreadId};

/// A recording in a file, which goes with it.
pub(crate) struct Recording(PathBuf);

impl Recording {
    pub(crate) fn of(name: &str, script: &Script) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-dashboard-{}-{name}", std::process::id()));
        script.save(&path).expect("the file can be written");
        Self(path)
    }

    pub(crate) fn dashboard(&self) -> Dashboard {
        Dashboard::of_file(&self.0, "127.0.0.1:0").expect("a port is free")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const MS: u64 = 1_000_000;

/// The program looks `main` up; its unit blocks in a lookup of `helper`, whose unit another worker makes; a second lookup never ends.
///
/// ```text
///  ms        0    1    2       4              10     11   12       20   30
///  program   lookup main .............................................|  lookup lost ...
///  worker 1            main.ll [ir.read ][ blocked ........ ][ir.optimize]
///  worker 2                       helper.ll [ir.generate ......]
/// ```
pub(crate) fn chain() -> Script {
    let mut script = Script::new(1 << 10, 4);
    let threads = ["main", "uruk-worker-1", "uruk-worker-2"].map(|name| script.thread(name));
    let mut note = |thread: usize, ms: u64, kind: Kind, name: &str, a: u64, b: u64| {
        let name = script.name(name);
        let thread: ThreadId = threads[thread];
        script.note(thread, ms * MS, Entry::new(kind).of(1).named(name).with(a, b));
    };
    note(0, 0, Kind::Dylib, "main", 1, 0);
    note(0, 0, Kind::Defined, "main.ll", 1, 1);
    note(0, 0, Kind::Defined, "helper.ll", 2, 1);
    note(0, 0, Kind::Defined, "unused.ll", 3, 1);
    note(0, 0, Kind::Claimed, "main.ll", 201, 0);
    note(0, 0, Kind::Lodged, "main", 101, 0);
    note(1, 1, Kind::Begun, "", 201, 0);
    note(1, 1, Kind::PhaseBegun, "ir.read", 201, 0);
    note(1, 2, Kind::PhaseEnded, "ir.read", 201, 0);
    note(1, 2, Kind::Claimed, "helper.ll", 202, 201);
    note(1, 2, Kind::Lodged, "<img src=x onerror=alert(1)>", 102, 201);
    note(1, 2, Kind::Blocked, "", 102, 0);
    note(2, 4, Kind::Begun, "", 202, 0);
    note(2, 4, Kind::PhaseBegun, "ir.generate", 202, 0);
    note(2, 10, Kind::PhaseEnded, "ir.generate", 202, 0);
    note(2, 10, Kind::Emitted, "", 202, 1);
    note(2, 10, Kind::Ready, "helper", 302, 202);
    note(2, 10, Kind::Ended, "", 202, 0);
    note(2, 11, Kind::Completed, "", 102, 202);
    note(1, 12, Kind::Unblocked, "", 102, 0);
    note(1, 12, Kind::PhaseBegun, "ir.optimize", 201, 0);
    note(1, 20, Kind::PhaseEnded, "ir.optimize", 201, 0);
    note(1, 20, Kind::Emitted, "", 201, 1);
    note(1, 20, Kind::Ready, "main", 301, 201);
    note(1, 20, Kind::Ended, "", 201, 0);
    note(1, 20, Kind::Completed, "", 101, 201);
    note(1, 20, Kind::Bytes, "main dylib", 1, 3 << 20);
    note(1, 20, Kind::CacheAsked, "main.ll", 1, 0);
    note(0, 25, Kind::Claimed, "lost.ll", 203, 0);
    note(0, 25, Kind::Lodged, "lost", 103, 0);
    note(0, 30, Kind::Defined, "late.ll", 4, 1);
    script
}
