//! How long the cache takes: 10,000 entries of 20 KB on disk, alone and beside another reader and a writer.
//!
//! `cargo bench -p uruk-pipeline --no-default-features --bench cache` prints medians and tenths. It runs this binary again as the other
//! processes.

use std::io::{Read, Write, stdin, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use uruk_pipeline::cache::{
    Access, InterfaceIngredients, Key, KeyBuilder, MemoryCache, ObjectCache, Pack, PackLimits,
};
use uruk_pipeline::object::ObjectBuffer;

const ENTRIES: u64 = 10_000;
const ENTRY_BYTES: usize = 20_000;
const SAMPLES: u64 = 50_000;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("read"), Some(directory)) => read_until_told(Path::new(&directory)),
        (Some("write"), Some(directory)) => write_until_told(Path::new(&directory)),
        _ => measure(),
    }
}

fn measure() {
    let directory = std::env::temp_dir().join(format!("uruk-bench-cache-{}", std::process::id()));
    let pack = open(&directory);
    let bytes = vec![0x90; ENTRY_BYTES];
    row("put", 2_000, |number| {
        pack.put(&key(number), &bytes).expect("there is room");
    });
    for batch in 20..ENTRIES / 100 {
        let entries: Vec<_> = (batch * 100..batch * 100 + 100).map(|number| (key(number), &*bytes)).collect();
        pack.put_all(&entries, false).expect("there is room");
    }
    row(&format!("open, {} entries", pack.verify().entries), 500, |_| drop(open(&directory)));
    rows_of_gets("alone", &pack);
    {
        let _others = [Other::start("read", &directory), Other::start("write", &directory)];
        rows_of_gets("beside a reader and a writer", &pack);
    }
    let memory = MemoryCache::new(1 << 30);
    let keys: Vec<Key> = (0..ENTRIES).map(key).collect();
    for key in &keys {
        memory.put(key, &ObjectBuffer::new("object", bytes.clone()));
    }
    row("get from memory", SAMPLES, |number| {
        memory.get(&keys[(number * 7919 % ENTRIES) as usize]).expect("it is there");
    });
    row("key of 20 KB", 5_000, |number| {
        let source = InterfaceIngredients {
            source: &bytes,
            text_name: None,
            triple: "x86_64-unknown-linux-gnu",
            cpu: "sapphirerapids",
            features: "+avx2",
            compiler_build: "22.1.8",
            salt: &number.to_le_bytes(),
        };
        std::hint::black_box(source.key());
    });
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

fn rows_of_gets(beside: &str, pack: &Pack) {
    let keys: Vec<Key> = (0..ENTRIES).map(key).collect();
    let absent: Vec<Key> = (0..ENTRIES).map(|number| key(number | 1 << 40)).collect();
    let at = |number: u64| (number * 7919 % ENTRIES) as usize;
    row(&format!("get of 20 KB, {beside}"), SAMPLES, |number| {
        std::hint::black_box(pack.get(&keys[at(number)]).expect("it is there"));
    });
    row(&format!("miss, {beside}"), SAMPLES, |number| {
        pack.get(&absent[at(number)]).expect_err("it is not there");
    });
}

/// Measures each call, and prints the median and the ninth tenth.
fn row(name: &str, samples: u64, mut call: impl FnMut(u64)) {
    let mut times: Vec<f64> = (0..samples)
        .map(|number| {
            let begun = Instant::now();
            call(number);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let part = |tenths: usize| times[times.len() * tenths / 10];
    writeln!(stdout(), "{name:45} {:8.2} µs, 9 of 10 below {:8.2} µs", part(5), part(9))
        .expect("standard output");
}

fn open(directory: &Path) -> Pack {
    Pack::open(directory, Access::ReadWrite, PackLimits { size_bytes: 4 << 30, ..PackLimits::default() })
        .expect("a directory of our own")
}

fn key(number: u64) -> Key {
    KeyBuilder::new("bench").number("number", number).finish()
}

/// A process that reads or writes until it is dropped.
struct Other(std::process::Child);

impl Other {
    fn start(role: &str, directory: &Path) -> Self {
        let binary = std::env::current_exe().expect("this bench");
        let mut command = Command::new(binary);
        command.arg(role).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this bench again");
        let mut begun = [0];
        child
            .stdout
            .as_mut()
            .expect("it is piped")
            .read_exact(&mut begun)
            .expect("it says that it has begun");
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

/// Says that it has begun. The flag is set when the bench has ended, however it has.
fn begin() -> Arc<AtomicBool> {
    stdout().write_all(b"!").and_then(|()| stdout().flush()).expect("somebody listens");
    let has_ended = Arc::new(AtomicBool::new(false));
    let flag = has_ended.clone();
    std::thread::spawn(move || {
        let _ = stdin().read(&mut [0]);
        flag.store(true, Ordering::Relaxed);
    });
    has_ended
}

fn read_until_told(directory: &Path) {
    let (pack, has_ended) = (open(directory), begin());
    for number in (0..).take_while(|_| !has_ended.load(Ordering::Relaxed)) {
        std::hint::black_box(pack.get(&key(number * 6007 % ENTRIES))).expect("it is there");
    }
}

/// A writer that compiles, too: 20 KB every millisecond.
fn write_until_told(directory: &Path) {
    let (pack, has_ended) = (open(directory), begin());
    let (bytes, pause) = (vec![0x91; ENTRY_BYTES], uruk_core::sync::Latch::new());
    for number in (1 << 50..).take_while(|_| !has_ended.load(Ordering::Relaxed)) {
        pack.put(&key(number), &bytes).expect("there is room");
        pause.wait_timeout(std::time::Duration::from_millis(1));
    }
}
