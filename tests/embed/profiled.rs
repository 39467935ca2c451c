//! The files that perf reads, read back.

use std::path::PathBuf;

use uruk::Jit;
use uruk::pipeline::debug::{self, PerfFormat};

use crate::support::{alone_with, c_with, is_alone, temporary};

/// Links functions that take each other's memory. Prints the address of each.
fn program() {
    let format = if std::env::var_os("JITDUMPDIR").is_some() { PerfFormat::JitDump } else { PerfFormat::Map };
    let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
    let before = jit.create_tracker();
    jit.in_tracker(&before).add_object(object("before")).expect("a new name");
    let mut said = vec![
        (std::process::id() as u64, "process".to_owned()),
        (address(&jit, "before"), "before".to_owned()),
    ];
    debug::set_perf(Some(format)).expect("the files can be made");
    for name in ["first", "second"] {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker).add_object(object(name)).expect("a new name");
        said.push((address(&jit, name), name.to_owned()));
        tracker.remove().expect("nothing of it objects");
    }
    debug::set_perf(None).expect("nothing is made");
    jit.add_object(object("after")).expect("a new name");
    address(&jit, "after");
    let lines: Vec<_> = said.iter().map(|(number, name)| format!("said {number} {name}\n")).collect();
    std::io::Write::write_all(&mut std::io::stdout(), lines.concat().as_bytes()).expect("there is a reader");
}

fn object(name: &str) -> uruk::pipeline::object::ObjectBuffer {
    c_with(
        &format!("{name}.o"),
        &format!("#line 1 \"{name}.c\"\nint {name}(int x) {{\n  return x + 1;\n}}\n"),
        &["-O0", "-g"],
    )
}

fn address(jit: &Jit, name: &str) -> u64 {
    jit.lookup(name).expect("it is linked").address.value()
}

/// The words of the program: its number, and addresses with names.
fn said(name: &str, variables: &[(&str, &str)]) -> (u64, Vec<(u64, String)>) {
    let output = alone_with(name, variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().filter_map(|line| line.split("said ").nth(1)?.split_once(' '));
    let mut said: Vec<_> =
        lines.map(|(number, name)| (number.parse().expect("a number"), name.to_owned())).collect();
    assert_eq!(said.len(), 4, "{text}");
    assert_eq!(said[2].0, said[3].0, "the test means to use memory again");
    (said.remove(0).0, said)
}

#[test]
fn a_map_has_each_function_in_the_order_of_links() {
    if is_alone() {
        return program();
    }
    let (process, said) = said("profiled::a_map_has_each_function_in_the_order_of_links", &[]);
    let path = PathBuf::from(format!("/tmp/perf-{process}.map"));
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::remove_file(path).expect("it is ours");
    let line = |line: &str| {
        let mut parts = line.splitn(3, ' ').map(str::to_owned);
        let mut number = || u64::from_str_radix(&parts.next().expect("a part"), 16).expect("a number");
        let (start, size) = (number(), number());
        assert!(size > 4, "{text}");
        (start, parts.next().expect("a name"))
    };
    assert_eq!(text.lines().map(line).collect::<Vec<_>>(), said, "{text}");
}

/// A record of a dump: kind, time, and what follows.
struct Record {
    kind: u32,
    time: u64,
    body: Vec<u8>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(number)
}

fn text(bytes: &[u8], at: usize) -> String {
    let end = at + bytes[at..].iter().position(|&byte| byte == 0).expect("it ends");
    String::from_utf8_lossy(&bytes[at..end]).into_owned()
}

fn records(dump: &[u8]) -> Vec<Record> {
    let (mut records, mut at) = (Vec::new(), number::<4>(dump, 8) as usize);
    while at < dump.len() {
        let size = number::<4>(dump, at + 4) as usize;
        let (kind, time) = (number::<4>(dump, at) as u32, number::<8>(dump, at + 8));
        records.push(Record { kind, time, body: dump[at + 16..at + size].to_vec() });
        at += size;
    }
    records
}

/// Code that takes the memory of other code has a record of its own, with a later time.
#[test]
fn a_dump_has_names_times_code_and_lines() {
    if is_alone() {
        return program();
    }
    let directory = temporary();
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    let place = directory.display().to_string();
    let (process, said) = said("profiled::a_dump_has_names_times_code_and_lines", &[("JITDUMPDIR", &place)]);
    let dump = std::fs::read(directory.join(format!("jit-{process}.dump"))).expect("it was written");
    std::fs::remove_dir_all(directory).expect("it is ours");
    let header = [0x4a69_5444, 1, 40, 62, 0, process];
    assert_eq!((0..6).map(|word| number::<4>(&dump, 4 * word)).collect::<Vec<_>>(), header);
    let records = records(&dump);
    assert_eq!(records.iter().map(|record| record.kind).collect::<Vec<_>>(), [2, 0, 2, 0, 2, 0, 3]);
    assert!(records.is_sorted_by_key(|record| record.time), "times go forward");
    for (number_of, (pair, (address, name))) in records.chunks(2).zip(&said).enumerate() {
        let [lines, code] = pair else { panic!("lines stand before code") };
        let body = &code.body;
        assert_eq!(
            (number::<4>(body, 0), number::<8>(body, 8), number::<8>(body, 16)),
            (process, *address, *address)
        );
        assert_eq!((number::<8>(body, 32), text(body, 40)), (number_of as u64, name.clone()));
        assert_eq!(body.len() - 40 - name.len() - 1, number::<8>(body, 24) as usize);
        assert_eq!(body.last(), Some(&0xc3), "the last instruction returns");
        assert_eq!((number::<8>(&lines.body, 0), number::<8>(&lines.body, 16)), (*address, *address));
        assert!(number::<8>(&lines.body, 8) >= 2, "a function has several lines");
        assert_eq!(number::<4>(&lines.body, 24), 1, "the first line");
        assert!(text(&lines.body, 32).ends_with(&format!("{name}.c")));
    }
}
