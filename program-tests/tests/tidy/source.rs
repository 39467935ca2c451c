//! The workspace's Rust files, and what of their text is code.

use std::fs;
use std::path::{Path, PathBuf};

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// Whether it is a module that is there for unit tests alone.
    pub(crate) is_test: bool,
}

/// Directories that hold Rust files of ours.
const ROOTS: [&str; 17] = [
    "recorder",
    "core",
    "dispatch",
    "instances",
    "pipeline",
    "kaleidoscope",
    "orc-c",
    "executor",
    "src",
    "tests",
    "program-tests",
    "protocol-tests",
    "loom-tests",
    "shuttle-tests",
    "benches",
    "examples",
    "fuzz",
];

/// Where the workspace stands.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// Reads a file of the workspace, if it is there.
pub(crate) fn read(path: &str) -> Option<String> {
    fs::read_to_string(workspace().join(path)).ok()
}

/// Every Rust file of the workspace, in order of paths. Programs that tests compile themselves are data, not source.
pub(crate) fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut pending: Vec<PathBuf> = ROOTS.iter().map(|root| workspace().join(root)).collect();
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.expect("a readable directory").path();
            let relative = relative(&path);
            if path.is_dir() {
                if relative != "program-tests/programs" && !relative.ends_with("/target") {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a Rust file is text");
                sources.push(Source { path: relative, text, is_test: false });
            }
        }
    }
    let test_modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        source.is_test = test_modules.iter().any(|module| {
            source.path == format!("{module}.rs") || source.path.starts_with(&format!("{module}/"))
        });
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 20, "the workspace's files were not found below {}", workspace().display());
    sources
}

impl Source {
    /// Whether the file belongs to a library that embedders link, as opposed to tests and tools.
    pub(crate) fn is_library(&self) -> bool {
        !self.is_test && self.is_in_library()
    }

    fn is_in_library(&self) -> bool {
        [
            "recorder/src/",
            "core/src/",
            "dispatch/src/",
            "instances/src/",
            "pipeline/src/",
            "kaleidoscope/src/",
            "orc-c/src/",
        ]
        .iter()
        .any(|root| self.path.starts_with(root))
            || (self.path.starts_with("src/") && !self.is_command())
    }

    /// Whether the file belongs to the `uruk` command.
    pub(crate) fn is_command(&self) -> bool {
        self.path == "src/main.rs" || self.path.starts_with("src/cli/")
    }

    /// The modules that this file declares under `cfg(test)`, as paths without an ending.
    fn test_modules(&self) -> Vec<String> {
        let directory = match self.path.rsplit_once('/') {
            Some((directory, "mod.rs" | "lib.rs" | "main.rs")) => directory,
            _ => self.path.trim_end_matches(".rs"),
        };
        let lines: Vec<&str> = self.text.lines().collect();
        let declared = lines.windows(2).filter(|pair| begins_tests(pair[0]));
        let names = declared.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
        names.map(|name| format!("{directory}/{name}")).collect()
    }

    /// The lines before the unit tests.
    pub(crate) fn lines_before_tests(&self) -> impl Iterator<Item = &str> {
        // A declaration of a test module is one line among others; what follows it is code.
        let declares =
            |next: Option<&&str>| next.is_some_and(|line| line.starts_with("mod ") && line.ends_with(';'));
        let lines: Vec<&str> = self.text.lines().collect();
        let begin = (0..lines.len()).find(|&at| begins_tests(lines[at]) && !declares(lines.get(at + 1)));
        lines.into_iter().take(begin.unwrap_or(usize::MAX))
    }

    /// The same with comments, strings and characters blanked out; lines stay where they are.
    pub(crate) fn code_before_tests(&self) -> String {
        let length = self.lines_before_tests().count();
        blank_out_prose(&self.text).lines().take(length).collect::<Vec<_>>().join("\n")
    }
}

fn begins_tests(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

fn relative(path: &Path) -> String {
    let relative = path.strip_prefix(workspace()).expect("a path below the workspace");
    relative.to_string_lossy().replace('\\', "/")
}

/// Replaces everything that is no code by spaces. Knows as much Rust as that takes.
fn blank_out_prose(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let prose = prose_length(rest, code.chars().next_back());
        if prose == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let (blanked, after) = rest.split_at(prose);
        code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    code
}

/// How much of the beginning of `rest` is a comment or a literal.
fn prose_length(rest: &str, before: Option<char>) -> usize {
    let until =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    let in_a_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_a_word && let Some(raw) = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let opening = rest.len() - raw.len() + hashes + 1;
            return until(&format!("\"{}", "#".repeat(hashes)), opening);
        }
    }
    if rest.starts_with('"') {
        return quoted_length(rest, '"');
    }
    // 'a' and '\n' are characters, 'a without an end is a lifetime.
    let mut characters = rest.chars();
    if characters.next() == Some('\'') {
        match (characters.next(), characters.next()) {
            (Some('\\'), _) => return quoted_length(rest, '\''),
            (Some(c), Some('\'')) => return 2 + c.len_utf8(),
            _ => {}
        }
    }
    0
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn prose_is_blanked_out_and_code_is_not() {
    let text = "let a = 'x'; // unsafe\nlet b: &'static str = \"unsafe \\\" unsafe\"; /* unsafe */ r#\"unsafe\"# '\\'' end";
    let code = blank_out_prose(text);
    assert_eq!(code.len(), text.len());
    assert!(!code.contains("unsafe"), "{code}");
    assert!(code.contains("&'static str") && code.ends_with(" end"), "{code}");
}
