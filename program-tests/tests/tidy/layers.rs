//! The order inside `core`, `pipeline` and `src`: code that stands low does not know what stands above it.

use std::collections::{BTreeMap, BTreeSet};

use super::demand_none;
use super::source::{Source, sources};

/// The folders of the protocol, lowest first. A file may know its own folder and those before it.
const PROTOCOL: [&str; 11] = [
    "storage",     // ids, slabs, memory: knows no symbol
    "dependences", // the forest, generic
    "dependants",  // who needs what is Ready
    "state",       // what there is, and small functions that keep it
    "urgency",     // priorities rise
    "symbols",     // one symbol, or one unit: defined, claimed, resolved, emitted, failed, gone
    "lookups",     // symbols are searched and claimed
    "check",       // what holds between two operations
    "slices",      // what follows from an operation, in slices
    "removal",     // names, trackers, dylibs and the session go; transactions
    "deadlock",    // blocked threads look for cycles
];

/// The data of a folder above the state that is a part of the state all the same, private to its folder. Each counts as `state`.
const PARTS_OF_THE_STATE: [&str; 3] = ["deadlock/threads.rs", "slices/agenda.rs", "urgency/followers.rs"];

const ROOT: &str = "core/src/protocol/";

/// The rooms of the pipeline, lowest first. A file may know its own room and those before it.
const PIPELINE: [&str; 20] = [
    "arch",        // relocations, instructions, templates of code
    "memory",      // pages, and views of them
    "code_ranges", // which code is at an address
    "debug",       // names of linked code, for debuggers, profilers and reports
    "executor",    // the door to the place where code runs: a trait, and data
    "runtime",     // this process as that place: the C library and libgcc, in their own terms
    "guard",       // threads that say what they may be running
    "peer",        // another process that works for this one
    "helpers",     // processes that compile
    "remote",      // a process that runs the code
    "object",      // files before they are linked
    "platform",    // files of a program, and what they run at start and end
    "cache",       // objects that were compiled before
    "link",        // objects become bytes at addresses
    "image",       // a linked program as a file
    "linking",     // links and the session
    "invoke",      // trampolines between calling conventions
    "tiers",       // which functions are compiled again, and when
    "lazy",        // functions that are compiled when they are called
    "ir",          // LLVM
];

/// The rooms of the facade, lowest first.
const FACADE: [&str; 51] = [
    "image_unit",       // a unit of an image, and why it was rejected
    "error",            // one type of errors
    "function",         // addresses as functions
    "units",            // a file as units; what a format is
    "unit",             // a unit with its place in the order of initialisation
    "object_unit",      // an object that a function makes
    "objects",          // objects, and the linking that all formats share
    "modules",          // LLVM IR
    "archive",          // archives that go with a tracker
    "all_or_nothing",   // several additions to a tracker
    "cache",            // what was compiled before, and where it is
    "loaded_images",    // the ids of images that are loaded
    "files",            // files of any format become part of a program
    "compiler_runtime", // the C compiler's own library
    "executable",       // symbols that the host keeps to itself
    "ready",            // lookups of Ready symbols
    "redefinitions",    // those that are told when functions are redefined
    "remote",           // the process that runs the code, if it is another one
    "engine",           // what all scopes share
    "scope",            // a dylib or a tracker
    "initialize",       // its methods, from here on
    "lookup",
    "image_options",
    "package_sources", // sources beside a package
    "package_bodies",  // functions of a package that may get other bodies
    "package_checks",  // whether units of a package may be used
    "package",         // an image of many units
    "image",
    "image_instances", // code instances of an image
    "adding",
    "handle",
    "host",
    "request",
    "cached_object",
    "guard",
    "lazy",
    "unmapping",
    "jit",     // the engine's end
    "binding", // its methods, from here on
    "link",
    "caching",
    "dylibs",
    "precompile",
    "builder",       // how it is made
    "image_targets", // the processors of an image
    "image_builder", // a program that never runs
    "emitted",       // its parts, for other tools
    "metrics",       // figures for Prometheus
    "dashboard",     // notes as a page
    "trace",         // spans as a file
    "cli",           // the command
];

/// The state stands below, the verbs that act on it above, and those in an order of their own.
#[test]
fn folders_of_the_protocol_know_only_those_below() {
    let mut findings = Vec::new();
    for source in protocol() {
        let Some((file, rank)) = place_of(&source) else { continue };
        let code = source.code_before_tests();
        if code.contains("crate::protocol::{") {
            findings.push(format!(
                "{ROOT}{file}: imports a group from `crate::protocol`: one `use` for each module"
            ));
        }
        let paths: BTreeSet<&str> = paths_in(&code, "crate::protocol::").collect();
        for path in paths {
            if let Some(above) = rank_of(path).filter(|&above| above > rank) {
                findings
                    .push(format!("{ROOT}{file} ({}): names {path} ({})", PROTOCOL[rank], PROTOCOL[above]));
            }
        }
    }
    demand_none(
        findings,
        "move the data down into `state`, or let the function return what its caller above has to do next",
    );
}

/// `SessionState` has its methods in many files, and a call names no file: so calls are held to the same order.
#[test]
fn operations_of_the_protocol_call_only_those_below() {
    let sources = protocol();
    let mut defined: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for source in &sources {
        let Some((file, rank)) = place_of(source) else { continue };
        for body in bodies_of_the_state(&source.code_before_tests()) {
            defined.extend(functions_in(&body).map(|name| (name.to_owned(), (file, rank))));
        }
    }
    assert!(defined.len() > 100, "the operations of the state were not found: {}", defined.len());
    let mut findings = BTreeSet::new();
    for source in &sources {
        let Some((file, rank)) = place_of(source) else { continue };
        let code = source.code_before_tests();
        let of_self =
            bodies_of_the_state(&code).iter().flat_map(|body| calls_on("self", body)).collect::<Vec<_>>();
        for name in of_self.into_iter().chain(calls_on("state", &code)) {
            if let Some((above, _)) = defined.get(&name).filter(|(_, above)| *above > rank) {
                findings
                    .insert(format!("{ROOT}{file} ({}): calls `{name}` of {ROOT}{above}", PROTOCOL[rank]));
            }
        }
    }
    demand_none(
        findings,
        "let the caller above decide: return what has to be done next, add it to the agenda, or move what is called down",
    );
}

/// The order lists what is there, and nothing else.
#[test]
fn the_order_of_the_protocol_lists_its_folders() {
    let folders: BTreeSet<String> = protocol()
        .iter()
        .filter_map(|source| Some(source.path.strip_prefix(ROOT)?.split_once('/')?.0.to_owned()))
        .collect();
    let listed: BTreeSet<String> = PROTOCOL.map(str::to_owned).into();
    let differing = folders.symmetric_difference(&listed).map(|folder| format!("{ROOT}{folder}/"));
    demand_none(differing, "give the folder its place in PROTOCOL, or take it off");
    let gone = PARTS_OF_THE_STATE.iter().filter(|part| super::read(&format!("{ROOT}{part}")).is_none());
    demand_none(gone.map(|part| format!("{ROOT}{part}")), "take it off PARTS_OF_THE_STATE");
}

/// Memory, objects, the linker and LLVM stand in an order, so that each can be read, and replaced, without those above.
#[test]
fn rooms_of_the_pipeline_know_only_those_below() {
    demand_none(
        findings_of_rooms("pipeline/src/", &PIPELINE),
        "move the data down, take a closure or a trait of one's own, or let the room above put the two together",
    );
}

/// Formats of files stand below the engine, the engine below its scopes, and these below the `Jit`, which a builder makes.
#[test]
fn rooms_of_the_facade_know_only_those_below() {
    demand_none(
        findings_of_rooms("src/", &FACADE),
        "move the data down, or let the room above put the two together",
    );
    let listed = FACADE.iter().filter(|room| {
        let file = |name: &str| super::read(&format!("src/{room}{name}")).is_some();
        !file(".rs") && !file("/mod.rs")
    });
    demand_none(listed.map(|room| format!("src/{room}")), "take it off FACADE");
}

/// Arrows that run up among the rooms of `root`, a file or a folder each.
fn findings_of_rooms(root: &str, rooms: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources().into_iter().filter(|source| !source.is_test) {
        let Some(file) = source.path.strip_prefix(root) else { continue };
        if !matches!(file, "lib.rs" | "main.rs") {
            findings.extend(findings_of_room(&source, file, rooms));
        }
    }
    findings
}

fn findings_of_room(source: &Source, file: &str, rooms: &[&str]) -> Vec<String> {
    let rank = |room: &str| rooms.iter().position(|listed| *listed == room);
    let room = file.split(['/', '.']).next().unwrap_or(file);
    let Some(own) = rank(room) else {
        return vec![format!("{}: `{room}` has no place in the order", source.path)];
    };
    let mut findings = Vec::new();
    let code = source.code_before_tests();
    if code.contains("crate::{") {
        findings.push(format!("{}: imports a group from `crate`: one `use` for each room", source.path));
    }
    let named: BTreeSet<&str> =
        paths_in(&code, "crate::").filter_map(|path| path.split("::").next()).collect();
    for named in named {
        match rank(named) {
            Some(above) if above > own => findings.push(format!("{} ({room}): names {named}", source.path)),
            None if named.starts_with(char::is_uppercase) => {
                findings.push(format!(
                    "{} ({room}): names {named} by its re-export, not by its room",
                    source.path
                ));
            }
            _ => (),
        }
    }
    findings
}

/// The files of the protocol that are no tests.
fn protocol() -> Vec<Source> {
    let of_it = |source: &Source| source.path.starts_with(ROOT) && !source.is_test;
    sources().into_iter().filter(of_it).collect()
}

/// Where a file stands: its path in the protocol, and its rank.
fn place_of(source: &Source) -> Option<(&str, usize)> {
    let file = source.path.strip_prefix(ROOT)?;
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    Some((file, rank_of(&module)?))
}

/// The rank of a module of the protocol, or of something in one.
fn rank_of(path: &str) -> Option<usize> {
    let file = |part: &str| part.trim_end_matches(".rs").replace('/', "::");
    let is_part = PARTS_OF_THE_STATE
        .iter()
        .any(|part| path == file(part) || path.starts_with(&format!("{}::", file(part))));
    let folder = if is_part { "state" } else { path.split("::").next()? };
    PROTOCOL.iter().position(|listed| *listed == folder)
}

/// The path behind `prefix`, wherever that stands.
fn paths_in<'c>(code: &'c str, prefix: &'c str) -> impl Iterator<Item = &'c str> {
    let in_a_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(prefix).skip(1).map(move |after| {
        let end = after.find(|c| !in_a_path(c)).unwrap_or(after.len());
        after[..end].trim_end_matches(':')
    })
}

/// The bodies of `impl SessionState`, each up to the line that closes it.
fn bodies_of_the_state(code: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl<P: Payload> SessionState<P> {") {
            bodies.push(lines.by_ref().take_while(|line| *line != "}").collect::<Vec<_>>().join("\n"));
        }
    }
    bodies
}

/// The names of the functions that a body defines itself.
fn functions_in(body: &str) -> impl Iterator<Item = &str> {
    let own = body.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    own.filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next())
}

/// The methods that are called on `receiver`.
fn calls_on(receiver: &str, code: &str) -> Vec<String> {
    let in_a_word = |c: char| c.is_alphanumeric() || c == '_';
    let called = code.match_indices(receiver).filter_map(|(at, _)| {
        if code[..at].ends_with(in_a_word) {
            return None;
        }
        let after = code[at + receiver.len()..].trim_start().strip_prefix('.')?;
        let end = after.find(|c| !in_a_word(c))?;
        after[end..].starts_with('(').then(|| after[..end].to_owned())
    });
    called.collect()
}

/// Keeps the helpers honest where they decide what is a call.
#[test]
fn calls_are_found_and_fields_are_not() {
    let code = "impl<P: Payload> SessionState<P> {\n    pub(crate) fn emit<T>(&mut self) {\n        self\n            .settle(1);\n        self.rows.find();\n        myself.go();\n    }\n}\n";
    let bodies = bodies_of_the_state(code);
    assert_eq!(bodies.iter().flat_map(|body| functions_in(body)).collect::<Vec<_>>(), ["emit"]);
    assert_eq!(calls_on("self", &bodies[0]), ["settle"]);
    assert!(rank_of("deadlock::threads::Held") == rank_of("state"));
    let paths: Vec<_> = paths_in("use crate::protocol::state::row::{Row};", "crate::protocol::").collect();
    assert_eq!(paths, ["state::row"]);
}
