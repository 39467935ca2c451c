//! The table of spans names those that there are, with their fields: dashboards of others are built on it.

use std::collections::BTreeMap;

use super::demand_none;
use super::source::{read, sources};

const TABLE: &str = "src/spans.md";

/// Crates whose spans an embedder sees.
const CRATES: [&str; 5] = ["core/src/", "dispatch/src/", "instances/src/", "pipeline/src/", "src/"];

type Spans = BTreeMap<String, Vec<String>>;

/// A span was renamed, and the panels that asked for it stayed empty.
#[test]
fn every_span_is_in_the_table_with_its_fields() {
    let (made, listed) = (made(), listed());
    assert!(made.len() > 15, "the sources have more spans than {made:?}");
    let mut findings = Vec::new();
    for (name, fields) in &made {
        match listed.get(name) {
            Some(listed) if listed == fields => {}
            Some(listed) => findings.push(format!("`{name}` has {fields:?}, and the table {listed:?}")),
            None => findings.push(format!("`{name}` with {fields:?} is not in the table")),
        }
    }
    let gone = listed.keys().filter(|name| !made.contains_key(*name));
    findings.extend(gone.map(|name| format!("`{name}` is in the table, and no code makes it")));
    demand_none(
        findings,
        &format!("correct {TABLE}; a name or a field that goes breaks dashboards, so say it in CHANGELOG.md"),
    );
}

/// The spans of the sources.
fn made() -> Spans {
    let mut spans = Spans::new();
    for source in sources().into_iter().filter(|source| !source.is_test) {
        if !CRATES.iter().any(|root| source.path.starts_with(root)) {
            continue;
        }
        let text = source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        assert_eq!(
            text.matches("_span!(").count(),
            text.matches("debug_span!(").count(),
            "{}: a span of another level",
            source.path
        );
        // The macro itself has no name here.
        let calls = ["debug_span!(", "phase!("].map(|opening| text.split(opening).skip(1));
        let is_named = |call: &&str| call.trim_start().starts_with('"');
        for call in calls.into_iter().flatten().filter(is_named) {
            let (name, fields) = parts(call);
            let fields = spans.entry(name.clone()).or_insert_with(|| fields.clone()) == &fields;
            assert!(fields, "{}: `{name}` has other fields elsewhere", source.path);
        }
    }
    spans
}

/// The name and the names of the fields of a call of the macro, from behind its parenthesis.
fn parts(call: &str) -> (String, Vec<String>) {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in call.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one").push(letter);
    }
    let mut names = parts.iter().map(|part| part.split('=').next().unwrap_or_default().trim());
    let name = names.next().unwrap_or_default().trim_matches('"').to_owned();
    (
        name,
        names
            .filter(|name| !name.is_empty())
            .map(|name| name.trim_start_matches(['%', '?']).to_owned())
            .collect(),
    )
}

/// The rows of the table: `name`, then its fields.
fn listed() -> Spans {
    let text = read(TABLE).unwrap_or_else(|| panic!("{TABLE} is missing"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")).map(|line| {
        let mut cells = line.split('|');
        let name = cells.next().unwrap_or_default().trim().trim_end_matches('`').to_owned();
        let fields = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
        (name, fields.map(str::to_owned).collect())
    });
    rows.collect()
}

/// The page reads notes by numbers of its own, and a kind that is missing there is drawn as nothing.
#[test]
fn the_page_numbers_notes_as_the_recorder_does() {
    let numbered = |path: &str, sign: char, end: char| -> BTreeMap<String, u16> {
        let text = read(path).unwrap_or_else(|| panic!("{path} is missing"));
        let pairs = text.split([end, '\n', '{']).filter_map(|pair| {
            let (name, number) = pair.trim().split_once(sign)?;
            Some((name.trim().to_owned(), number.trim().parse().ok()?))
        });
        pairs.collect()
    };
    let kinds = numbered("recorder/src/note.rs", '=', ',');
    assert!(kinds.len() > 20, "the recorder has more kinds than {kinds:?}");
    assert_eq!(numbered("src/dashboard/page/kinds.js", ':', ','), kinds);
}

#[test]
fn calls_are_taken_apart_at_their_own_commas() {
    let fields = |call| parts(call).1;
    assert_eq!(
        parts("\"a.b\", unit = %f(x, y), level = ?z, late = tracing::field::Empty,\n    ); more(1)").0,
        "a.b"
    );
    assert_eq!(fields("\"a\", unit = %f(x, y), level = ?z,\n    );"), ["unit", "level"]);
    assert_eq!(fields("\"a\", part, %priority); b"), ["part", "priority"]);
    assert_eq!(fields("\"a\")"), [""; 0]);
}
