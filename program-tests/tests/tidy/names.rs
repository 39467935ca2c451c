//! A type's name says which of all types is meant.

use std::collections::{BTreeMap, BTreeSet};

use super::demand_none;
use super::source::sources;

/// Names that two types of core still share. The list may only shrink.
const SHARED: [&str; 6] = ["Asked", "Counted", "Entry", "Held", "Level", "Work"];

/// One name, one type: who searches for it finds it, and who reads it need not look which is imported.
#[test]
fn a_type_name_of_core_appears_once() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_library()) {
        // Models replace what is in `sync`, each under the name of what it replaces.
        if !source.path.starts_with("core/src/") || source.path.starts_with("core/src/sync/") {
            continue;
        }
        for name in source.code_before_tests().lines().filter_map(declared) {
            // Twice in one file: one of them for models.
            places.entry(name.to_owned()).or_default().insert(source.path.clone());
        }
    }
    let is_twice = |name: &str| places.get(name).is_some_and(|places| places.len() > 1);
    let mut findings: Vec<String> = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !SHARED.contains(&name.as_str()))
        .map(|(name, places)| {
            format!("`{name}`: {}", places.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        })
        .collect();
    let gone = SHARED.iter().filter(|name| !is_twice(name));
    findings.extend(gone.map(|name| format!("`{name}` appears once: take it off SHARED")));
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
