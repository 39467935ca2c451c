//! Circles of files: files that need each other, directly or by way of others, and so are understood only together.
//!
//! A file needs the files that define the names in its paths and imports; re-exports are followed to the definition. Declaring a child
//! module, and exporting a child's names, is no need by itself. `URUK_CIRCLES=pipeline/src cargo test -p uruk-tests --test tidy circles`
//! lists the circles of a crate, with the needs inside each.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, sources};
use super::{demand_none, has_word};

/// How many files the largest circle has, of each crate, or of a room of it. The numbers may only fall.
const LARGEST: [(&str, &str, usize); 9] = [
    ("core/src", "", 18),
    ("dispatch/src", "", 7),
    ("pipeline/src", "ir/", 10),
    ("pipeline/src", "link/", 10),
    ("pipeline/src", "memory/", 3),
    ("pipeline/src", "runtime/", 4),
    ("pipeline/src", "", 3),
    ("src", "", 1),
    ("orc-c/src", "", 1),
];

/// How far below its number a circle may be, so that every edit need not come here.
const SLACK_FILES: usize = 2;

#[test]
fn circles_of_files_grow_no_further() {
    let sources = sources();
    let mut findings = Vec::new();
    for (root, room, allowed) in LARGEST {
        let rooms: Vec<&str> =
            LARGEST.iter().filter(|(of, ..)| *of == root).map(|(_, room, _)| *room).collect();
        let is_elsewhere =
            |file: &str| rooms.iter().any(|other| other.len() > room.len() && file.starts_with(other));
        let circles = Crate::new(root, &sources).circles();
        let mut circles =
            circles.iter().filter(|circle| circle[0].starts_with(room) && !is_elsewhere(circle[0]));
        let circle: &[&str] = circles.next().map_or(&[], Vec::as_slice);
        if circle.len() > allowed || circle.len() + SLACK_FILES < allowed {
            let (count, files) = (circle.len(), circle.join(", "));
            findings
                .push(format!("{root}/{room}: a circle of {count} files, LARGEST says {allowed}: {files}"));
        }
    }
    demand_none(
        findings,
        "move what both sides need into a file below both, or lower the number; `URUK_CIRCLES=<crate>/src` lists the needs",
    );
}

#[test]
fn circles_can_be_listed() {
    let Some(root) = std::env::var_os("URUK_CIRCLES") else { return };
    let root = root.to_string_lossy().trim_end_matches('/').to_owned();
    let sources = sources();
    let files = Crate::new(&root, &sources);
    let needs = files.needs();
    let mut listing = String::new();
    for circle in files.circles() {
        listing += &format!("\n{} files\n", circle.len());
        for file in &circle {
            let inside: Vec<&str> =
                needs[file].iter().filter(|&need| circle.contains(need)).copied().collect();
            listing += &format!("  {file}: {}\n", inside.join(", "));
        }
    }
    panic!("{root}: {listing}");
}

/// A file as a module.
struct Module<'s> {
    /// Relative to the crate's root.
    file: &'s str,
    path: Vec<String>,
    /// Without comments, and without imports.
    code: String,
    /// Imported names, each with the path that it stands for, and whether it is exported too.
    imports: BTreeMap<String, (Vec<String>, bool)>,
    /// Modules of which all names are imported.
    globs: Vec<Vec<String>>,
}

struct Crate<'s> {
    modules: Vec<Module<'s>>,
    by_path: BTreeMap<Vec<String>, usize>,
}

impl<'s> Crate<'s> {
    fn new(root: &str, sources: &'s [Source]) -> Self {
        let is_of_it = |source: &&Source| !source.is_test && !source.is_command();
        let modules: Vec<Module<'s>> = sources
            .iter()
            .filter(is_of_it)
            .filter_map(|source| {
                let file = source.path.strip_prefix(root)?.strip_prefix('/')?;
                Some(Module::new(file, &source.code_before_tests()))
            })
            .collect();
        let by_path =
            modules.iter().enumerate().map(|(index, module)| (module.path.clone(), index)).collect();
        Self { modules, by_path }
    }

    /// The files that each file needs.
    fn needs(&self) -> BTreeMap<&'s str, BTreeSet<&'s str>> {
        let of = |module: &Module<'s>| {
            let imported = module
                .imports
                .iter()
                .filter(|(name, (_, exported))| !exported || has_word(&module.code, name));
            let imported = imported.map(|(_, (path, _))| path.clone());
            let paths = imported.chain(module.globs.iter().cloned()).chain(paths_in(&module.code));
            let files = paths.filter_map(|path| self.defines(module, &path, 0));
            files.map(|index| self.modules[index].file).filter(|file| *file != module.file).collect()
        };
        self.modules.iter().map(|module| (module.file, of(module))).collect()
    }

    /// The module that defines what a path in `from` names. `None` for modules themselves, and for what is of another crate.
    fn defines(&self, from: &Module<'s>, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let within = |base: &[String], rest: &[String]| self.descend(base, rest, depth);
        let parent = &from.path[..from.path.len().saturating_sub(1)];
        match first.as_str() {
            _ if depth > 8 => None,
            "crate" => within(&[], rest),
            "self" => within(&from.path, rest),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                within(&parent[..parent.len().saturating_sub(1)], &rest[1..])
            }
            "super" => within(parent, rest),
            name => match from.imports.get(name) {
                // An import that begins with its own name is of another crate.
                Some((target, _)) if target.first() != Some(first) => {
                    self.defines(from, &[target, rest].concat(), depth + 1)
                }
                _ if self.by_path.contains_key(&[&from.path[..], &[name.to_owned()]].concat()) => {
                    within(&from.path, path)
                }
                _ => None,
            },
        }
    }

    /// The same of a path that begins in the module `base`.
    fn descend(&self, base: &[String], rest: &[String], depth: usize) -> Option<usize> {
        let mut base = base.to_vec();
        for (at, segment) in rest.iter().enumerate() {
            base.push(segment.clone());
            if self.by_path.contains_key(&base) {
                continue;
            }
            base.pop();
            let index = *self.by_path.get(&base)?;
            let module = &self.modules[index];
            if let Some((target, _)) = module.imports.get(segment) {
                return self.defines(module, &[target, &rest[at + 1..]].concat(), depth + 1);
            }
            let defines = |index: &usize| self.modules[*index].defines(segment);
            let through_glob = || {
                let targets = module.globs.iter().filter_map(|path| self.module_at(module, path));
                targets.into_iter().find(defines)
            };
            return if defines(&index) { Some(index) } else { through_glob().or(Some(index)) };
        }
        None
    }

    /// The module that a path names.
    fn module_at(&self, from: &Module<'s>, path: &[String]) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let parent = &from.path[..from.path.len().saturating_sub(1)];
        let base = match first.as_str() {
            "crate" => rest.to_vec(),
            "self" => [&from.path[..], rest].concat(),
            "super" => [parent, rest].concat(),
            _ => [&from.path[..], path].concat(),
        };
        self.by_path.get(&base).copied()
    }

    /// Groups of files that reach each other, the largest first.
    fn circles(&self) -> Vec<Vec<&'s str>> {
        let needs = self.needs();
        let reach = |start: &'s str| {
            let (mut seen, mut pending) = (BTreeSet::new(), vec![start]);
            while let Some(file) = pending.pop() {
                pending.extend(needs[file].iter().filter(|need| seen.insert(**need)));
            }
            seen
        };
        let reached: BTreeMap<&str, BTreeSet<&str>> = needs.keys().map(|file| (*file, reach(file))).collect();
        let circle_of = |file: &'s str| -> Vec<&'s str> {
            reached[file].iter().filter(|other| reached[*other].contains(file)).copied().collect()
        };
        let mut circles: Vec<Vec<&str>> =
            needs.keys().map(|file| circle_of(file)).filter(|circle| circle.len() > 1).collect();
        circles.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        circles.dedup();
        circles
    }
}

impl<'s> Module<'s> {
    fn new(file: &'s str, code: &str) -> Self {
        let path = file.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        let path = if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() };
        let mut module =
            Self { file, path, code: String::new(), imports: BTreeMap::new(), globs: Vec::new() };
        let mut rest = code;
        while let Some(at) = next_import(rest) {
            let line = rest[..at].rfind('\n').map_or(0, |end| end + 1);
            let exported = rest[line..at].trim_start().starts_with("pub");
            module.code.push_str(&rest[..line]);
            let end = rest[at..].find(';').map_or(rest.len(), |end| at + end + 1);
            let tree = rest[at + "use ".len()..end].trim_end_matches(';');
            module.add_imports(&[], tree.trim(), exported);
            rest = &rest[end..];
        }
        module.code.push_str(rest);
        module
    }

    fn add_imports(&mut self, prefix: &[String], tree: &str, exported: bool) {
        if let Some((head, group)) = tree.split_once('{') {
            let head = segments(head.trim().trim_end_matches("::"));
            let prefix = [prefix, &head].concat();
            let group = group.trim_end().strip_suffix('}').unwrap_or(group);
            elements(group).into_iter().for_each(|element| self.add_imports(&prefix, element, exported));
            return;
        }
        let (path, name) =
            tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
        let mut path = [prefix, &segments(path.trim())].concat();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        match (path.last().cloned(), name) {
            (Some(last), _) if last == "*" => {
                path.pop();
                self.globs.push(path);
            }
            (Some(last), name) => {
                self.imports.insert(name.map_or(last, str::to_owned), (path, exported));
            }
            (None, _) => {}
        }
    }

    /// Whether the file itself defines an item of that name.
    fn defines(&self, name: &str) -> bool {
        const ITEMS: [&str; 9] =
            ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "union ", "macro_rules! "];
        ITEMS.iter().any(|item| self.code.split(item).skip(1).any(|after| first_word(after) == name))
    }
}

/// Where the next import begins, at its `use`.
fn next_import(code: &str) -> Option<usize> {
    code.match_indices("use ").map(|(at, _)| at).find(|&at| {
        let line = &code[code[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let before = line.trim_start();
        before.is_empty() || before.starts_with("pub") && !before.contains("fn ")
    })
}

/// The elements of a group of imports, which may be groups themselves.
fn elements(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(group[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(group[begin..].trim());
    found.retain(|element| !element.is_empty());
    found
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The paths of two segments and more.
fn paths_in(code: &str) -> impl Iterator<Item = Vec<String>> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.contains("::")).map(segments).filter(|path| path.len() > 1)
}

/// Keeps the helpers honest.
#[test]
fn needs_are_followed_through_exports() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into(), is_test: false };
    let sources = [
        source("x/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
        source("x/src/a/mod.rs", "mod inner;\npub(crate) use inner::Thing;\n"),
        source(
            "x/src/a/inner.rs",
            "use crate::b::{self, Other as Renamed};\npub(crate) struct Thing(Renamed);\n",
        ),
        source("x/src/b.rs", "pub(crate) struct Other;\nfn f() { crate::a::Thing::new() }\n"),
        source("x/src/c.rs", "use super::a::*;\nuse std::fmt;\nfn f(_: fmt::Formatter) -> Thing {}\n"),
    ];
    let files = Crate::new("x/src", &sources);
    let needs = files.needs();
    let of = |file: &str| needs[file].iter().copied().collect::<Vec<_>>();
    assert_eq!(of("a/inner.rs"), ["b.rs"]);
    assert_eq!(of("b.rs"), ["a/inner.rs"]);
    assert_eq!(of("a/mod.rs"), [""; 0]);
    assert_eq!(files.circles(), [["a/inner.rs", "b.rs"]]);
}
