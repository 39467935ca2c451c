//! House rules of the documents: what they name exists, and they stay short.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::demand_none;
use crate::source::{read, sources, workspace};

/// Pages that are read from the top, and the most lines they take: ten minutes each.
const PAGES_TO_READ: [(&str, usize); 2] = [("README.md", 150), ("ARCHITECTURE.md", 200)];

/// How many invariants the design has: `I1` to `I15`.
const INVARIANTS: usize = 15;

/// A newcomer's walk is seven files at most, and they exist.
#[test]
fn the_walk_in_the_readme_can_be_walked() {
    let Some(readme) = read("README.md") else {
        // The rule is about a table of the README; without one there is nothing to hold it against.
        return;
    };
    // | 1 | [core/src/session.rs](core/src/session.rs) | what to see |
    let steps: Vec<&str> = readme
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            cells.next()?.parse::<usize>().ok()?;
            cells.next()?.split_once("](")?.1.strip_suffix(')')
        })
        .collect();
    assert!(
        !steps.is_empty(),
        "README.md has no walk: a table `| step | file | what to see |` with numbered rows"
    );
    assert!(steps.len() <= 7, "the walk has {} rows; a newcomer follows seven", steps.len());
    let missing = steps.into_iter().filter(|path| !workspace().join(path).is_file());
    demand_none(missing.map(str::to_owned), "correct the walk in README.md: these files do not exist");
}

/// How many files a blocking lookup passes through at most, from the call to the dispatcher.
const LOOKUP_FILES_MAX: usize = 20;

/// The walk of a lookup in ARCHITECTURE.md is short, and each of its functions stands in its file.
#[test]
fn the_walk_of_a_lookup_can_be_walked() {
    let architecture = read("ARCHITECTURE.md").expect("ARCHITECTURE.md exists");
    let (_, walk) =
        architecture.split_once("### From the call to the dispatcher").expect("the walk has its heading");
    // | `core/src/session.rs` | `transact` | what it does |
    let step = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('`');
        Some((cells.next()?.to_owned(), cells.nth(1)?.to_owned()))
    };
    let steps: Vec<_> = walk.lines().take_while(|line| !line.starts_with("## ")).filter_map(step).collect();
    assert!(!steps.is_empty(), "the walk is a table of files and functions");
    assert!(steps.len() <= LOOKUP_FILES_MAX, "a lookup passes through {} files", steps.len());
    let is_there = |(file, function): &(String, String)| {
        read(file).is_some_and(|text| {
            [format!("fn {function}("), format!("fn {function}<")].iter().any(|head| text.contains(head))
        })
    };
    demand_none(
        steps.iter().filter(|step| !is_there(step)).map(|(file, function)| format!("{file}: `{function}`")),
        "correct the walk of a lookup in ARCHITECTURE.md: these functions are not in their files",
    );
}

/// A page that explains is read from the top by someone who knows nothing yet. Text that only the author of one module needs stands beside
/// that module.
#[test]
fn pages_that_explain_stay_short() {
    let lengths =
        PAGES_TO_READ.map(|(page, max)| (page, max, read(page).map_or(0, |text| text.lines().count())));
    let long = lengths.into_iter().filter(|(_, max, lines)| lines > max);
    demand_none(
        long.map(|(page, max, lines)| format!("{page}: {lines} lines, at most {max}")),
        "move what few need into the README beside its code, and name that in *Where to read on*",
    );
}

/// Each invariant of the design is in the table that says what enforces it.
#[test]
fn every_invariant_has_its_row() {
    let architecture = read("ARCHITECTURE.md").expect("ARCHITECTURE.md exists");
    let names = (1..=INVARIANTS).map(|number| format!("| I{number} | "));
    let missing = names.filter(|row| architecture.matches(row.as_str()).count() != 1);
    demand_none(missing, "give it one row in ARCHITECTURE.md, Invariants");
}

/// A promise without a test, a model or a bench does not stand among the guarantees.
#[test]
fn every_guarantee_names_what_holds_it() {
    let guarantees = read("GUARANTEES.md").expect("GUARANTEES.md exists");
    let rows = guarantees.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise |"));
    let unheld = rows.filter(|row| {
        let held_by = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        !held_by.contains("](") && !held_by.contains("`make ")
    });
    demand_none(
        unheld.map(str::to_owned),
        "link the test, model or bench that holds it, or take the promise out",
    );
}

/// Links of documents lead somewhere, headings included.
#[test]
fn links_lead_somewhere() {
    let mut findings = Vec::new();
    for (page, text) in documents() {
        for target in
            without_code_blocks(&text).split("](").skip(1).filter_map(|after| after.split(')').next())
        {
            if target.contains("://") {
                continue;
            }
            let (path, heading) =
                target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
            let file = match path {
                "" => workspace().join(&page),
                path => workspace().join(&page).with_file_name(path),
            };
            let leads = match heading {
                None => file.exists(),
                Some(heading) => fs::read_to_string(&file).is_ok_and(|text| has_heading(&text, heading)),
            };
            if !leads {
                findings.push(format!("{page}: {target}"));
            }
        }
    }
    demand_none(findings, "correct the link, or the page that it leads to");
}

/// A document names no Rust file and no page that is not there. A file may be named by the end of its path,
/// a folder by any part of it.
#[test]
fn files_that_documents_name_exist() {
    let sources: Vec<String> = sources().into_iter().map(|source| format!("/{}", source.path)).collect();
    let mut findings = BTreeSet::new();
    for (page, text) in documents() {
        let text = without_code_blocks(&text);
        let folder = workspace().join(&page).with_file_name("");
        for name in text.split('`').skip(1).step_by(2).filter(|name| is_path(name)) {
            let exists =
                [workspace(), folder.clone(), folder.join("src")].iter().any(|from| from.join(name).exists());
            let is_there = |path: &String| match name.ends_with('/') {
                true => path.contains(&format!("/{name}")),
                false => path.ends_with(&format!("/{name}")),
            };
            if !exists && !sources.iter().any(is_there) {
                findings.insert(format!("{page}: `{name}`"));
            }
        }
    }
    demand_none(findings, "name the file as it is called now");
}

/// The pages of the workspace, by path. The changelog names what there was.
pub(crate) fn documents() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut pending = vec![workspace()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // Directories of builds and tools, and programs of others.
            if path.is_dir() && !name.starts_with(['.']) && !name.starts_with("target") && name != "programs"
            {
                pending.push(path);
            } else if name.ends_with(".md") && name != "CHANGELOG.md" {
                let relative = path.strip_prefix(workspace()).expect("a path below the workspace");
                let text = fs::read_to_string(&path).expect("a page is text");
                pages.push((relative.to_string_lossy().into_owned(), text));
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 4, "the documents were not found below {}", workspace().display());
    pages
}

/// A page without what stands between fences, where paths are made up and brackets are code.
pub(crate) fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !fence && !inside
    };
    text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// Whether what stands in backticks names a Rust file, a page or a folder, all of them ours.
fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let is_folder =
        name.contains('/') && workspace().join(name.split('/').next().unwrap_or_default()).is_dir();
    is_plain && (name.ends_with(".rs") || name.ends_with(".md") || is_folder || name.ends_with('/'))
}

/// Whether a page has a heading of that anchor, which is made as GitHub makes it.
fn has_heading(text: &str, anchor: &str) -> bool {
    let anchor_of = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect::<String>()
    };
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#')).any(|heading| anchor_of(heading) == anchor)
}

#[test]
fn headings_have_anchors() {
    assert!(has_heading("# Why `it` holds, here", "why-it-holds-here"));
    assert!(!has_heading("Why it holds", "why-it-holds"));
    assert!(
        is_path("core/src/row.rs") && is_path("row.rs") && !is_path("Row::advance") && !is_path("a.rs b")
    );
    assert!(Path::new(&without_code_blocks("a\n```\nb\n```")).ends_with("a"));
}
