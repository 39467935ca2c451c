//! A type's name says which of all types is meant.

use std::collections::{BTreeMap, BTreeSet};

use super::demand_none;
use super::source::sources;

/// Names that two types of a crate still share. The list may only shrink.
const SHARED: [(&str, &str); 6] = [
    ("core/src/", "Asked"),
    ("core/src/", "Counted"),
    ("core/src/", "Entry"),
    ("core/src/", "Held"),
    ("core/src/", "Level"),
    ("core/src/", "Work"),
];

/// The crates; the command is one beside its library.
const CRATES: [&str; 8] = [
    "recorder/src/",
    "core/src/",
    "dispatch/src/",
    "pipeline/src/",
    "kaleidoscope/src/",
    "orc-c/src/",
    "src/cli/",
    "src/",
];

/// Files whose types stand in models for others, each under the name of the type that it replaces.
const OF_MODELS: [&str; 2] = ["core/src/sync/", "dispatch/src/queues/model.rs"];

/// One name, one type: a search for the name finds it, and a reader need not look which type is imported.
#[test]
fn a_type_name_appears_once_in_a_crate() {
    let mut places: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_library() || source.is_command()) {
        let Some(of) = CRATES.into_iter().find(|root| source.path.starts_with(root)) else { continue };
        if source.is_test || OF_MODELS.iter().any(|path| source.path.starts_with(path)) {
            continue;
        }
        for name in source.code_before_tests().lines().filter_map(declared) {
            // Twice in one file: one of them for models.
            places.entry((of, name.to_owned())).or_default().insert(source.path.clone());
        }
    }
    let mut findings: Vec<String> = places
        .iter()
        .filter(|((of, name), places)| places.len() > 1 && !SHARED.contains(&(*of, name.as_str())))
        .map(|((_, name), places)| {
            format!("`{name}`: {}", places.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        })
        .collect();
    let is_twice = |of: &'static str, name: &str| {
        places.get(&(of, name.to_owned())).is_some_and(|places| places.len() > 1)
    };
    let gone = SHARED.iter().filter(|(of, name)| !is_twice(of, name));
    findings.extend(gone.map(|(_, name)| format!("`{name}` appears once: take it off SHARED")));
    demand_none(findings, "give one of them a name that says what it is");
}

/// The name of the type that a line declares, at the top of a file or in a module.
fn declared(line: &str) -> Option<&str> {
    let is_nested = line.starts_with(' ');
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || word.ends_with(')'));
    // Types inside of implementations belong to a trait.
    let keyword = words.next().filter(|word| {
        ["struct", "enum", "trait", "union"].contains(word) || (*word == "type" && !is_nested)
    })?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!keyword.is_empty() && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Keeps the helper honest where it decides what is a declaration.
#[test]
fn declarations_are_found() {
    assert_eq!(declared("pub(in crate::protocol) struct Row<P> {"), Some("Row"));
    assert_eq!(declared("type Names = Vec<SymbolName>;"), Some("Names"));
    assert_eq!(declared("    type Unit = u32;"), None);
    assert_eq!(declared("impl Row {"), None);
}
