//! The order of core's modules: one that stands low imports none that stands above it.

use std::collections::{BTreeMap, BTreeSet};

use super::demand_none;
use super::source::{Source, sources};

/// The modules of core, lowest first. A file may know its own module and those before it.
const CORE: [&str; 24] = [
    "sync",           // the only door to threads, locks and atomics
    "hints",          // what work says of itself
    "priority",       // how urgent it is
    "symbol",         // names, what they are, addresses, sets
    "ids",            // of what a session knows
    "causes",         // errors of the embedder
    "deadlock",       // steps of a cycle
    "failure",        // why symbols failed
    "panics",         // of the embedder, caught
    "in_span",        // the same for spans
    "why",            // why a symbol is not Ready
    "event",          // what observers are told
    "error",          // one enum for each operation
    "removal_policy", // what a removal does with who depends on it
    "ready_index",    // Ready symbols, without the lock
    "task",           // tasks, who runs them, strands
    "protocol",       // the state and its verbs
    "lookup_result",  // what a lookup answers
    "session",        // the lock, delivery, and the handles
    "transaction",    // what changes together
    "owned_tracker",  // a tracker that removes when it goes
    "link_order",     // orders of dylibs
    "units",          // units of ours
    "lib",            // what is public
];

/// Imports against the order, as `file: module`. The list may only shrink.
const AGAINST_THE_ORDER: [&str; 0] = [];

const ROOT: &str = "core/src/";

#[test]
fn modules_of_core_know_only_those_below() {
    let public = public_names();
    let mut found = BTreeSet::new();
    for source in core() {
        let Some(rank) = rank_of(module_of(&source.path)) else { continue };
        let code = source.code_before_tests();
        for name in names_of_the_crate(&code) {
            let module = public.get(name).map_or(name, String::as_str);
            if rank_of(module).is_none() {
                found.insert(format!("{}: `crate::{name}`, whose module is not known", source.path));
            } else if rank_of(module) > Some(rank) {
                found.insert(format!("{}: {module}", source.path));
            }
        }
    }
    let listed: BTreeSet<String> = AGAINST_THE_ORDER.iter().map(|&exception| exception.to_owned()).collect();
    demand_none(
        found.difference(&listed).cloned(),
        "move the value down to the lowest module that can own it, or let that module ask a trait of its own",
    );
    demand_none(listed.difference(&found).cloned(), "the import is gone: take it off AGAINST_THE_ORDER");
}

/// The order lists what is there, and nothing else.
#[test]
fn the_order_of_core_lists_its_modules() {
    let modules: BTreeSet<String> = core().iter().map(|source| module_of(&source.path).to_owned()).collect();
    let listed: BTreeSet<String> = CORE.map(str::to_owned).into();
    demand_none(
        modules.symmetric_difference(&listed).cloned(),
        "give the module its place in CORE, or take it off",
    );
}

/// The files of core that are no tests.
fn core() -> Vec<Source> {
    let of_it = |source: &Source| source.path.starts_with(ROOT) && !source.is_test;
    sources().into_iter().filter(of_it).collect()
}

fn rank_of(module: &str) -> Option<usize> {
    CORE.iter().position(|listed| *listed == module)
}

/// The module of core in which a file lies.
fn module_of(path: &str) -> &str {
    let below = path.strip_prefix(ROOT).expect("a file of core");
    below.split('/').next().map_or(below, |first| first.trim_end_matches(".rs"))
}

/// The public items of core, by name: the module from which it comes.
fn public_names() -> BTreeMap<String, String> {
    let library = super::read("core/src/lib.rs").expect("core has a root");
    let mut public = BTreeMap::new();
    for exported in library.split("\npub use ").skip(1) {
        let exported = exported.split(';').next().unwrap_or_default();
        let module = exported.split("::").next().unwrap_or_default();
        let names =
            exported.rsplit_once('{').or_else(|| exported.rsplit_once("::")).map_or("", |(_, names)| names);
        for name in names.trim_end_matches('}').split(',') {
            let name = name.rsplit(" as ").next().unwrap_or_default().trim();
            public.insert(name.to_owned(), module.to_owned());
        }
    }
    assert!(public.len() > 100, "the public names were not found: {}", public.len());
    public
}

/// The first word behind each `crate::`, also of each path in a group.
fn names_of_the_crate(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(group) => names.extend(items_of(group).map(first_word)),
            None => names.push(first_word(after)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The items of a group of imports, whose opening brace is behind us.
fn items_of(group: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut begin, mut items) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' => {
                items.push(&group[begin..at]);
                break;
            }
            ',' if depth == 0 => {
                items.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    items.into_iter()
}

fn first_word(path: &str) -> &str {
    let path = path.trim_start();
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(path.len());
    &path[..end]
}

/// Keeps the helpers honest where they decide what is imported.
#[test]
fn imports_are_found_in_groups_and_in_paths() {
    let code = "use crate::{error::{A, B}, Task,\n    why::C};\nfn f() { crate::panics::guard(g) }";
    assert_eq!(names_of_the_crate(code), ["error", "Task", "why", "panics"]);
    assert_eq!(module_of("core/src/task/unit.rs"), "task");
    assert_eq!(public_names().get("JitDylib").map(String::as_str), Some("session"));
}
