//! Plain English: a sentence begins with its subject, and says who acts. The counts of sentences that do not may only fall.

use std::collections::BTreeMap;

use crate::demand_none;
use crate::documents::{documents, without_code_blocks};
use crate::source::sources;

/// How many sentences of comments and documents begin with *What* or *Who*, and how many have *nobody*, *somebody*, *whoever* or
/// *whatever*, by folder. The numbers only go down.
const HARD_SENTENCES: [(&str, usize, usize); 7] = [
    ("core", 0, 3),
    ("kaleidoscope", 0, 0),
    ("pipeline", 0, 0),
    ("program-tests", 1, 1),
    ("protocol-tests", 0, 0),
    ("src", 12, 6),
    ("tests", 2, 3),
];

/// How far a count may lie below its number, so that every edit need not come here.
const SLACK: usize = 10;

/// A shorter run of words is a heading or a cell of a table.
const WORDS_MIN: usize = 3;

/// Names the folder whose hard sentences are listed.
const LIST: &str = "URUK_PROSE";

/// A tired colleague understands a sentence at the first reading.
#[test]
fn hard_sentences_become_fewer() {
    let listed = std::env::var(LIST).ok();
    let mut counts: BTreeMap<String, [usize; 2]> =
        HARD_SENTENCES.iter().map(|(folder, ..)| ((*folder).to_owned(), [0; 2])).collect();
    let mut findings = Vec::new();
    for (path, text) in prose() {
        let count = counts.entry(folder_of(&path).to_owned()).or_default();
        for sentence in sentences(&text) {
            let kinds = [begins_with_a_pronoun(&sentence), has_no_agent(&sentence)];
            count.iter_mut().zip(kinds).for_each(|(count, is_hard)| *count += usize::from(is_hard));
            if kinds.contains(&true) && listed.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                findings.push(format!("{path}: {sentence}"));
            }
        }
    }
    for (folder, [pronouns, agentless]) in counts {
        let row = HARD_SENTENCES.iter().find(|(listed, ..)| *listed == folder);
        let [pronouns_max, agentless_max] =
            row.map_or([0; 2], |&(_, pronouns, agentless)| [pronouns, agentless]);
        let kinds = [
            ("begin with What or Who", pronouns, pronouns_max),
            ("have nobody, somebody, whoever or whatever", agentless, agentless_max),
        ];
        for (kind, count, max) in kinds {
            if count > max {
                findings.push(format!("{folder}: {count} sentences {kind}, of at most {max}"));
            } else if count + SLACK < max {
                findings
                    .push(format!("{folder}: {count} sentences {kind}: lower the number, which is {max}"));
            }
        }
    }
    demand_none(
        findings,
        "begin with the subject and name who acts; URUK_PROSE=core/src/session lists the sentences of a folder",
    );
}

/// The folder that a file counts in; pages at the top count together.
fn folder_of(path: &str) -> &str {
    path.split_once('/').map_or("pages", |(folder, _)| folder)
}

/// Comments and documents, by path.
fn prose() -> Vec<(String, String)> {
    let comments = sources().into_iter().map(|source| (source.path, comments_of(&source.text)));
    let pages = documents().into_iter().map(|(path, text)| (path, without_code_blocks(&text)));
    comments.chain(pages).collect()
}

/// The text of comments. A line of code or an empty comment ends a paragraph.
fn comments_of(code: &str) -> String {
    let mut comments = String::new();
    for line in code.lines() {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => comments.push_str(comment.trim_start_matches(['/', '!'])),
            None => comments.push('\n'),
        }
        comments.push('\n');
    }
    comments
}

/// Sentences end with a mark; cells of tables and paragraphs end them too.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut sentence = Vec::new();
        for word in paragraph.split_whitespace().chain(["|"]) {
            if word != "|" {
                sentence.push(word);
            }
            if word == "|" || word.ends_with(['.', ':', ';', '?', '!']) {
                if sentence.len() >= WORDS_MIN {
                    sentences.push(sentence.join(" "));
                }
                sentence.clear();
            }
        }
    }
    sentences
}

fn begins_with_a_pronoun(sentence: &str) -> bool {
    let words = sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    let first = words.into_iter().find(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
    first.is_some_and(|word| ["What", "Who", "Whoever", "Whatever"].contains(&word))
}

fn has_no_agent(sentence: &str) -> bool {
    let mut words = sentence.split(|c: char| !c.is_alphanumeric());
    words.any(|word| ["nobody", "somebody", "whoever", "whatever"].contains(&word.to_lowercase().as_str()))
}

#[test]
fn a_sentence_may_go_over_lines_and_a_cell_is_one() {
    let text = "/// What it is. It waits\n/// for nobody.\nfn f() {}\n// 1. Who asks is told: so it is.\n";
    let found = sentences(&comments_of(text));
    assert_eq!(found, ["What it is.", "It waits for nobody.", "Who asks is told:", "so it is."]);
    assert_eq!(found.iter().filter(|sentence| begins_with_a_pronoun(sentence)).count(), 2);
    assert_eq!(found.iter().filter(|sentence| has_no_agent(sentence)).count(), 1);
    assert_eq!(sentences("| a cell of words | Who is it? |"), ["a cell of words", "Who is it?"]);
}
