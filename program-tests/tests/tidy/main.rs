//! House rules, as tests that say what to do when they fail.
//!
//! Each rule is one sentence at the head of its test; lists of exceptions stand at the top and may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

mod architectures;
mod chosen;
mod circles;
mod commits;
mod documents;
mod examples;
mod layers;
mod modules;
mod names;
mod packages;
mod prose;
mod source;
mod spans;

use source::{Source, read, sources};

/// Files longer than [`LINES_MAX`] lines, and how long they may be. Numbers only go down, and entries only
/// go; a file may be a little shorter than its number, so that every edit need not come here.
const LONG_FILES: &[(&str, usize)] = &[];

/// The most lines before the unit tests: what one noun or one verb takes.
const LINES_MAX: usize = 450;

/// How far below its number a long file may be.
const SLACK_LINES: usize = 40;

/// The files that may contain `unsafe`, and why a safe way will not do.
const UNSAFE_FILES: &[(&str, &str)] = &[
    (
        "core/src/symbol/text.rs",
        "counts what a lock guards without an atomic step, beside a text in one allocation, and fetches it to be written",
    ),
    ("core/src/ready_index/lone_guard.rs", "passes a method of `seize` on that is unsafe to call"),
    ("core/src/symbol/window.rs", "calls what every x86-64 has by its name"),
    ("pipeline/src/arch/aarch64/host/", "is the processor of this process"),
    ("pipeline/src/arch/x86_64/host/", "is the processor of this process"),
    ("pipeline/src/debug/gdb.rs", "keeps the list that gdb reads"),
    ("pipeline/src/debug/image.rs", "describes code that its caller keeps mapped"),
    ("pipeline/src/debug/jitdump.rs", "maps the file by which perf finds it, and copies code"),
    ("pipeline/src/debug/listing.rs", "copies code that the table keeps registered"),
    ("pipeline/src/debug/memory.rs", "reads linked code where it lies"),
    ("pipeline/src/debug/watchers.rs", "keeps code mapped while it is described"),
    ("pipeline/src/helpers/confine.rs", "handles the signal of forbidden system calls"),
    ("pipeline/src/ir/", "LLVM's C interface"),
    (
        "pipeline/src/invoke/mod.rs",
        "names the type of functions that read as many arguments as they are told",
    ),
    ("pipeline/src/memory/", "maps pages and hands out views of them"),
    ("pipeline/src/object/mapping.rs", "maps files"),
    ("pipeline/src/platform/initialize.rs", "runs what was linked"),
    ("pipeline/src/peer/private.rs", "closes descriptors of one thread alone"),
    ("pipeline/src/remote/exchange.rs", "forks a command, and ends one process as another has ended"),
    ("pipeline/src/remote/forward.rs", "handles signals that are for another process"),
    ("pipeline/src/remote/running.rs", "runs what another process has linked"),
    ("pipeline/src/runtime/", "answers libc and libgcc in their own terms"),
    ("recorder/src/clock.rs", "reads the processor's counter"),
    ("recorder/src/memory.rs", "maps the words of a recording"),
    ("src/function.rs", "turns an address into a function"),
    ("src/guard.rs", "finds functions to be called under guards"),
    ("src/request.rs", "passes on what its caller promises of a function"),
    ("src/handle.rs", "makes functions of addresses whose code it holds"),
    ("src/initialize.rs", "runs what was linked"),
    ("src/jit.rs", "its tests call what was linked"),
    ("src/unmapping.rs", "offers removals that do not wait for handles, and that leave dependants"),
    ("src/cli/repl/session/evaluate.rs", "calls what was compiled"),
    ("src/cli/run.rs", "enters the program"),
    ("src/cli/replaced.rs", "lets all libraries allocate as the program does"),
    ("src/main.rs", "is entered by C"),
    ("orc-c/src/boundary.rs", "reads the arguments of functions that C calls"),
    ("orc-c/src/callbacks.rs", "calls the client's functions"),
    ("orc-c/src/engine.rs", "calls the client's functions"),
    ("orc-c/src/errors.rs", "makes and takes over errors of LLVM's"),
    ("orc-c/src/frames.rs", "asks libgcc's unwinder"),
    ("orc-c/src/generators.rs", "calls the client's functions"),
    ("orc-c/src/memory.rs", "calls the client's functions, and writes to its memory"),
    ("orc-c/src/transforms.rs", "calls the client's functions"),
    ("orc-c/src/modules.rs", "calls the client's functions"),
    ("orc-c/src/objects.rs", "asks LLVM for its listeners"),
    ("orc-c/src/owned.rs", "owns values of LLVM's that C hands over"),
    ("orc-c/src/passes.rs", "stands in front of functions of LLVM's"),
    ("orc-c/src/put_off.rs", "reads a target machine of the client's"),
    ("orc-c/src/target.rs", "owns a target machine that C hands over"),
    ("orc-c/src/units.rs", "calls the client's functions"),
];

/// Which page has the tables of locks and atomics of which crate: it stands beside the code.
const PAGES: &[(&str, &str)] = &[
    ("recorder/", "recorder/README.md"),
    ("core/", "core/src/sync/README.md"),
    ("dispatch/", "dispatch/README.md"),
    ("instances/", "instances/README.md"),
    ("pipeline/", "pipeline/README.md"),
    ("src/", "src/README.md"),
    ("orc-c/", "orc-c/README.md"),
];

/// How many lines above an atomic access its comment may begin.
const COMMENT_LINES_MAX: usize = 20;

/// Every file begins by saying what it is for.
#[test]
fn every_file_has_module_docs() {
    let without = sources().into_iter().filter(|source| !begins_with_docs(&source.text));
    demand_none(
        without.map(|source| source.path),
        "begin with `//!`: what the module does, what it never does, what holds",
    );
}

/// A file holds one noun or one verb; one that grows past 450 lines usually holds two ideas.
#[test]
fn files_stay_short() {
    let mut findings = Vec::new();
    for source in sources().into_iter().filter(|source| source.is_library() || source.is_command()) {
        let lines = source.lines_before_tests().count();
        let listed = LONG_FILES.iter().find(|(path, _)| *path == source.path).map(|(_, limit)| *limit);
        match listed {
            None if lines > LINES_MAX => {
                findings.push(format!(
                    "{}: {lines} lines before its tests, at most {LINES_MAX}: split it",
                    source.path
                ));
            }
            Some(limit) if lines > limit => {
                findings.push(format!("{}: grew from {limit} to {lines} lines: split it", source.path));
            }
            Some(limit) if lines + SLACK_LINES < limit || lines <= LINES_MAX => {
                let advice = if lines > LINES_MAX {
                    format!("lower its number to {lines}")
                } else {
                    "take it off the list".to_owned()
                };
                findings.push(format!("{}: {lines} lines, LONG_FILES says {limit}: {advice}", source.path));
            }
            _ => {}
        }
    }
    let gone = LONG_FILES.iter().filter(|(path, _)| read(path).is_none());
    findings.extend(gone.map(|(path, _)| format!("{path}: does not exist; take it off LONG_FILES")));
    demand_none(findings, "see each line");
}

/// `unsafe` stays where it can be watched; `dispatch` has none.
#[test]
fn unsafe_stays_in_its_files() {
    let unlisted = sources().into_iter().filter(|source| {
        // Integration tests call compiled code, which has no safe way.
        (source.is_library() || source.is_command())
            && !UNSAFE_FILES.iter().any(|(place, _)| source.path.starts_with(place))
            && has_word(&source.code_before_tests(), "unsafe")
    });
    demand_none(
        unlisted.map(|source| source.path),
        "move the unsafe part into a listed place, or list the file in UNSAFE_FILES with the reason",
    );
}

/// Arrows point one way: `core`, `dispatch` and `instances` know no pipeline, and LLVM is named by `ir` alone.
#[test]
fn crates_and_modules_point_one_way() {
    let rules: [(&str, &[&str]); 6] = [
        (
            "core/",
            &[
                "uruk_dispatch",
                "uruk_instances",
                "uruk_pipeline",
                "inkwell",
                "llvm_sys",
                "libc::",
                "rustix::",
            ],
        ),
        ("dispatch/", &["uruk_instances", "uruk_pipeline", "inkwell", "llvm_sys", "libc::", "rustix::"]),
        ("instances/", &["uruk_dispatch", "uruk_pipeline", "inkwell", "llvm_sys", "libc::", "rustix::"]),
        ("kaleidoscope/src/", &["uruk::", "uruk_core", "uruk_dispatch", "uruk_pipeline", "llvm_sys"]),
        ("loom-tests/", &["uruk_pipeline", "inkwell", "llvm_sys"]),
        ("pipeline/src/", &["uruk_dispatch", "inkwell", "llvm_sys"]),
    ];
    let mut findings = Vec::new();
    for source in sources() {
        let code = source.code_before_tests();
        for (place, forbidden) in rules {
            // `ir` is the room for LLVM; a file beside it that has it too would pull LLVM into a build without.
            if !source.path.starts_with(place) || source.path.starts_with("pipeline/src/ir") {
                continue;
            }
            let named = forbidden.iter().filter(|name| code.contains(**name));
            findings
                .extend(named.map(|name| format!("{}: names {}", source.path, name.trim_end_matches(':'))));
        }
    }
    for manifest in ["core/Cargo.toml", "dispatch/Cargo.toml", "instances/Cargo.toml"] {
        let text = read(manifest).expect("the crate has a manifest");
        let named = ["uruk-pipeline", "inkwell", "llvm-sys", "libc", "rustix"].into_iter().filter(|name| {
            text.lines()
                .any(|line| line.starts_with(&format!("{name}.")) || line.starts_with(&format!("{name} ")))
        });
        findings.extend(named.map(|name| format!("{manifest}: depends on {name}")));
    }
    demand_none(findings, "move the code, or put a small trait where the two want each other");
}

/// Linking is arithmetic on bytes: it knows neither the session nor the place where the code will run.
#[test]
fn a_link_knows_no_session_and_no_process() {
    const FORBIDDEN: [&str; 14] = [
        "ExecutionSession",
        "JitDylib",
        "LookupRequest",
        "Responsibility",
        "Resource",
        "session",
        "libc",
        "rustix",
        "unsafe",
        "inkwell",
        "llvm_sys",
        "runtime",
        "platform",
        "guard",
    ];
    let mut findings = Vec::new();
    for source in sources().into_iter().filter(|source| source.path.starts_with("pipeline/src/link/")) {
        let code = source.code_before_tests();
        let named = FORBIDDEN.into_iter().filter(|name| code.contains(name));
        findings.extend(named.map(|name| format!("{}: names {name}", source.path)));
    }
    demand_none(
        findings,
        "take numbers and bytes instead, ask the `Executor`, or move the file to `pipeline/src/linking`",
    );
}

/// A dependency earns its line: some source of the crate names it.
#[test]
fn every_dependency_is_used() {
    let mut findings = Vec::new();
    for place in
        ["recorder", "core", "dispatch", "instances", "pipeline", "kaleidoscope", "orc-c", "executor"]
    {
        let manifest = read(&format!("{place}/Cargo.toml")).expect("the crate has a manifest");
        let (_, dependencies) =
            manifest.split_once("\n[dependencies]\n").expect("the crate has dependencies");
        let lines = dependencies.lines().take_while(|line| !line.starts_with('['));
        let names =
            lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty());
        let of_crate: Vec<_> = sources()
            .into_iter()
            .filter(|source| source.path.starts_with(&format!("{place}/src/")))
            .collect();
        for name in names.filter(|name| !name.starts_with('#')) {
            let path = name.replace('-', "_");
            if !of_crate.iter().any(|source| has_word(&source.code_before_tests(), &path)) {
                findings.push(format!("{place}/Cargo.toml: nothing in {place}/src names {path}"));
            }
        }
    }
    demand_none(
        findings,
        "take it out of the manifest, and out of the workspace's if no other crate uses it",
    );
}

/// The doors to threads, locks and atomics: core's, and that of the crate which core does not stand below.
fn is_door(path: &str) -> bool {
    path.starts_with("core/src/sync/") || path == "recorder/src/sync.rs"
}

/// Threads, locks and atomics come through one door, so that models can replace them.
#[test]
fn synchronization_comes_from_one_door() {
    const DOORS: [&str; 6] = [
        "std::sync::atomic",
        "std::thread::spawn",
        "std::thread::Builder",
        "std::thread::scope",
        "parking_lot::",
        "spin::",
    ];
    let mut findings = Vec::new();
    for source in sources() {
        if !source.is_library() || is_door(&source.path) {
            continue;
        }
        let code = source.code_before_tests();
        let named = DOORS.into_iter().chain(["loom::"]).filter(|path| code.contains(*path));
        findings.extend(named.map(|path| format!("{}: names {}", source.path, path.trim_end_matches(':'))));
    }
    demand_none(findings, "take it from `uruk_core::sync`");
}

/// An ordering has a partner: each label stands at both ends at least, and in the table of atomics of its crate.
#[test]
fn orderings_come_in_pairs() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut pages: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_library()) {
        for (number, line) in source.text.lines().enumerate() {
            let label = line.split_once("ordering[").and_then(|(_, after)| after.split_once("]:"));
            if let Some((label, _)) = label {
                let places = places.entry(label.to_owned()).or_default();
                places.push(format!("{}:{}", source.path, number + 1));
                pages.entry(label.to_owned()).or_default().insert(page_of(&source.path));
                // One read-modify-write, run by several threads, is both ends.
                if line.contains("Pairs with itself") {
                    places.push(String::new());
                }
            }
        }
    }
    let mut findings = Vec::new();
    for (label, places) in places {
        if places.len() < 2 {
            findings
                .push(format!("ordering[{label}] stands at {} alone: label the other end too", places[0]));
        }
        for page in &pages[&label] {
            if !section(page, "Atomics").contains(&format!("| `{label}` |")) {
                findings.push(format!("ordering[{label}]: give it a row in {page}, Atomics"));
            }
        }
    }
    demand_none(findings, "see each line");
}

/// An access that is not Relaxed names its partner; one that is says why nothing hangs on it.
#[test]
fn atomic_accesses_explain_themselves() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_library()) {
        let lines: Vec<&str> = source.lines_before_tests().collect();
        let code = source.code_before_tests();
        for (number, line) in code.lines().enumerate() {
            let above = &lines[number.saturating_sub(COMMENT_LINES_MAX)..=number];
            if line.trim_start().starts_with("use ") {
                continue;
            }
            let explained = |word: &str| above.iter().any(|line| line.contains("//") && line.contains(word));
            let ordered =
                ["Acquire", "Release", "AcqRel", "SeqCst"].iter().any(|ordering| has_word(line, ordering));
            if ordered && !explained("ordering[") {
                findings.push(format!("{}:{}: no ordering[label] above", source.path, number + 1));
            } else if !ordered && has_word(line, "Relaxed") && !explained("elaxed") {
                findings.push(format!("{}:{}: no reason for Relaxed above", source.path, number + 1));
            }
        }
    }
    demand_none(findings, "see CONTRIBUTING.md, Atomics");
}

/// Whether a file is a model, and not the list of them.
fn is_model(source: &Source) -> bool {
    source.path.starts_with("loom-tests/tests/") && !source.path.ends_with("/main.rs")
}

/// The steps that can be left out are those that models promise to notice: `weakened("model::what_is_left_out")` in the
/// source, and a row of the table *Fails if* at the head of the model, which ends with the test that
/// fails. The models themselves try each row.
#[test]
fn every_weakening_has_a_model() {
    let sources = sources();
    let mut left_out = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_library()) {
        let code = source.lines_before_tests().filter(|line| !line.trim_start().starts_with("//"));
        for after in code.flat_map(|line| line.split("weakened(\"").skip(1)) {
            let step = after.split('"').next().expect("split yields one piece at least");
            left_out.insert(step.to_owned(), source.path.clone());
        }
    }
    let mut findings = Vec::new();
    let mut promised = BTreeSet::new();
    for source in sources.iter().filter(|source| is_model(source)) {
        let model = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        for row in source.text.lines().filter(|line| line.starts_with("//! | `")) {
            let mut names = row.split('`').skip(1).step_by(2);
            let step = names.next().unwrap_or_default();
            let test = names.last().unwrap_or_default();
            match left_out.get(step) {
                _ if !step.starts_with(&format!("{model}::")) => {
                    findings.push(format!("{}: `{step}` does not begin with `{model}::`", source.path));
                }
                None => findings.push(format!("{}: no source leaves `{step}` out", source.path)),
                Some(place) if !row.contains(&format!("`{place}`")) => {
                    findings.push(format!("{}: `{step}` is left out in {place}", source.path));
                }
                Some(_) if !source.text.contains(&format!("fn {test}()")) => {
                    findings.push(format!("{}: there is no test `{test}`", source.path));
                }
                Some(_) => {}
            }
            promised.insert(step.to_owned());
        }
        if !source.text.contains("loom_tests::catches_its_weakenings!();") {
            findings.push(format!("{}: nobody tries its weakenings", source.path));
        }
    }
    findings.extend(
        left_out
            .iter()
            .filter(|(step, _)| !promised.contains(*step))
            .map(|(step, path)| format!("{path}: `{step}` is in no model's *Fails if*")),
    );
    demand_none(findings, "see CONTRIBUTING.md, Models");
}

/// A test that was never seen to fail proves nothing: the head of a model names each of its tests, in a row of the table
/// *Fails if*, or in a sentence that says why it is in none.
#[test]
fn every_test_of_a_model_was_seen_to_fail() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| is_model(source)) {
        let head: String = source.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let tests = source.text.split("#[test]\n").skip(1).filter_map(|after| {
            let name = after.split_once("fn ")?.1.split('(').next()?;
            Some(name.to_owned())
        });
        for test in tests.filter(|test| !head.contains(&format!("`{test}`"))) {
            findings.push(format!("{}: `{test}` is in no row", source.path));
        }
    }
    demand_none(findings, "leave out the step that it watches, or say at the head why there is none");
}

/// The author of a file chooses its names: with a hash that everybody knows, all of them fall into one place of a table, and a
/// file of n names takes n * n steps. Numbers from a file are no better; which they are, no test can tell.
#[test]
fn no_text_is_hashed_without_a_secret() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_library() || source.is_command()) {
        let code = source.code_before_tests();
        let tables = ["FxHashMap<", "FxHashSet<"].into_iter().flat_map(|table| code.split(table).skip(1));
        let keyed_by_text = tables.filter(|after| {
            let key = after.split([',', '>']).next().expect("split yields one piece at least");
            ["str", "String", "u8"].iter().any(|text| has_word(key, text))
        });
        findings.extend(keyed_by_text.map(|after| {
            format!("{}: a table of {}", source.path, after.lines().next().unwrap_or_default())
        }));
    }
    demand_none(findings, "use `std::collections`, or intern the text: a pool of names has a secret too");
}

/// Libraries never print.
#[test]
fn libraries_do_not_print() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_library()) {
        let code = source.code_before_tests();
        let printing = ["println!", "eprintln!", "print!(", "eprint!(", "dbg!("];
        findings.extend(
            printing.iter().find(|word| code.contains(**word)).map(|word| format!("{}: {word}", source.path)),
        );
    }
    demand_none(findings, "emit a `tracing` event, or return an error");
}

/// A table of locks that forgets one is worse than none.
#[test]
fn every_lock_is_in_the_table() {
    let without = sources().into_iter().filter(|source| {
        let code = source.code_before_tests();
        (source.is_library() || source.is_command())
            && !["core/src/sync/", "dispatch/src/queues/model.rs"]
                .iter()
                .any(|place| source.path.starts_with(place))
            && (code.contains(": Mutex<")
                || code.contains("Arc<Mutex<")
                || code.contains("CachePadded<Mutex<")
                || code.contains("BriefMutex<"))
            && !section(page_of(&source.path), "Locks").contains(&format!("| `{}` ", source.path))
    });
    let listed = without.map(|source| format!("{}: {}", source.path, page_of(&source.path)));
    demand_none(listed, "give each lock a row in the page that stands behind it, Locks");
}

/// Nor does a table of atomics forget one: those with labels, and those that are `Relaxed` alone.
#[test]
fn every_atomic_is_in_the_tables() {
    // A row names its first file by its path, and those that stand beside it by their names.
    let is_named = |path: &str| {
        let (folder, name) = path.rsplit_once('/').expect("a file stands in a folder");
        let crate_root = folder.split_once("/src").map_or(folder, |(root, _)| root);
        section(page_of(path), "Atomics").lines().any(|row| {
            row.contains(&format!("`{path}`"))
                || (row.contains(&format!("`{crate_root}/src/")) && row.contains(&format!("`{name}`")))
        })
    };
    let without = sources().into_iter().filter(|source| {
        let code = source.code_before_tests();
        let has_one =
            ["AtomicBool", "AtomicU", "AtomicI", "AtomicPtr"].iter().any(|name| code.contains(name));
        (source.is_library() || source.is_command())
            && !is_door(&source.path)
            && has_one
            && !is_named(&source.path)
    });
    let listed = without.map(|source| format!("{}: {}", source.path, page_of(&source.path)));
    demand_none(listed, "give each atomic a row in the page that stands behind it, Atomics");
}

/// The page that has the locks and atomics of a crate's file.
fn page_of(path: &str) -> &'static str {
    let page = PAGES.iter().find(|(place, _)| path.starts_with(place));
    page.unwrap_or_else(|| panic!("{path}: no page of PAGES has its locks and atomics")).1
}

/// The text below a heading of a page, up to the next heading.
fn section(page: &str, title: &str) -> String {
    let text = read(page).unwrap_or_else(|| panic!("{page} exists"));
    let section = text.split_once(&format!("\n# {title}\n")).map(|(_, after)| after);
    let section = section.unwrap_or_else(|| panic!("{page} has a section `# {title}`"));
    section.split_once("\n# ").map_or(section, |(section, _)| section).to_owned()
}

/// Changes for users are written down.
#[test]
fn the_changelog_has_a_place_for_what_comes_next() {
    let changelog = read("CHANGELOG.md").expect("CHANGELOG.md exists");
    assert!(
        changelog.contains("## Unreleased"),
        "CHANGELOG.md has no `## Unreleased`: add it, above the releases"
    );
}

/// A file's first lines, attributes aside, are its documentation.
fn begins_with_docs(text: &str) -> bool {
    let first = text.lines().find(|line| !line.is_empty() && !is_attribute_or_licence(line));
    first.is_some_and(|line| line.starts_with("//!")) || text.starts_with("#![doc = include_str!(")
}

fn is_attribute_or_licence(line: &str) -> bool {
    line.starts_with("#![") || (line.starts_with("// ") && line.contains("SPDX"))
}

fn has_word(code: &str, word: &str) -> bool {
    let in_a_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(in_a_word) && !code[at + word.len()..].starts_with(in_a_word))
}

/// Fails with all findings and what to do about them.
#[track_caller]
fn demand_none(findings: impl IntoIterator<Item = String>, advice: &str) {
    let mut listing = String::new();
    let mut count = 0;
    for finding in findings {
        count += 1;
        writeln!(listing, "  {finding}").expect("a String takes everything");
    }
    assert!(count == 0, "{count} found:\n{listing}What to do: {advice}.");
}

/// Keeps the helper honest where it decides what counts as documentation.
#[test]
fn docs_are_recognised_behind_attributes() {
    assert!(begins_with_docs("#![cfg(test)]\n//! What it is."));
    assert!(!begins_with_docs("use std::fmt;\n//! Too late."));
    let source = Source {
        path: "x.rs".to_owned(),
        text: "//! Docs.\nfn unsafe_not() {}\n#[cfg(test)]\nunsafe".to_owned(),
        is_test: false,
    };
    assert!(!has_word(&source.code_before_tests(), "unsafe"));
}
