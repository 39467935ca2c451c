//! House rules of the examples: central types have one that runs, and programs stay short.

use std::fs;

use crate::demand_none;
use crate::source::{read, sources, workspace};

/// The types that embedders meet first.
const CENTRAL: &[&str] = &[
    "ArchiveIndex",
    "DefinitionGenerator",
    "ExecutionSession",
    "ExecutionSessionBuilder",
    "FnUnit",
    "Function",
    "InPlaceTaskDispatcher",
    "InProcessMemoryManager",
    "IrCompileLayer",
    "IrTransformLayer",
    "Jit",
    "JitBuilder",
    "JitDylib",
    "JitError",
    "LinkGraphBuilder",
    "LookupError",
    "LookupRequest",
    "LookupResult",
    "LookupSet",
    "MaterializationResponsibility",
    "MaterializationUnit",
    "ObjectBuffer",
    "ObjectLinkingLayer",
    "OwnedTracker",
    "ProcessSymbolsGenerator",
    "RayonTaskDispatcher",
    "ReexportsGenerator",
    "ResourceTracker",
    "Scope",
    "SearchOrder",
    "StaticArchiveGenerator",
    "SymbolName",
    "SymbolStringPool",
    "Task",
    "ThreadSafeContext",
    "ThreadSafeModule",
    "Transaction",
    "Unmapping",
    "WithCauses",
    "WorkStealingTaskDispatcher",
];

/// The most lines of a program in `examples`.
const PROGRAM_LINES_MAX: usize = 100;

/// Programs in `examples` that may be longer, and why.
const LONG_PROGRAMS: &[(&str, &str)] =
    &[("blocked_workers.rs", "is read beside the trace that it writes, and has a test of it")];

/// A newcomer copies from the type's own page.
#[test]
fn central_types_have_an_example_that_runs() {
    let sources = sources();
    let without = CENTRAL.iter().filter(|name| !sources.iter().any(|source| has_example(&source.text, name)));
    demand_none(
        without.map(|name| (*name).to_owned()),
        "give these types an example, as a plain ``` block in their own documentation",
    );
}

/// Whether the text defines the type for everyone, below a documentation with a block of code that runs.
fn has_example(text: &str, name: &str) -> bool {
    let is_definition = |line: &str| {
        ["struct", "enum", "trait"].iter().any(|kind| {
            let rest = line.strip_prefix(&format!("pub {kind} {name}"));
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let lines: Vec<&str> = text.lines().collect();
    let Some(at) = lines.iter().position(|line| is_definition(line)) else { return false };
    let above = lines[..at].iter().rev();
    above.take_while(|line| line.starts_with("///") || line.starts_with("#[")).any(|line| *line == "/// ```")
}

/// An example that does not fit on two screens shows more than one thing.
#[test]
fn the_programs_in_examples_are_short() {
    let files = fs::read_dir(workspace().join("examples")).into_iter().flatten();
    let programs = files.filter_map(|entry| {
        let path = entry.ok()?.path();
        if path.is_dir() { Some(path.join("main.rs")) } else { Some(path) }
    });
    let long = programs.filter_map(|path| {
        let lines = fs::read_to_string(&path).ok()?.lines().count();
        let is_listed = LONG_PROGRAMS.iter().any(|(name, _)| path.ends_with(name));
        (lines >= PROGRAM_LINES_MAX && !is_listed).then(|| format!("{}: {lines} lines", path.display()))
    });
    demand_none(long, "an example takes less than 100 lines");
}

/// Where the tasks are that the README counts, in the order of its columns.
const TASKS: [&str; 4] = [
    "tests/embed/tasks.rs",
    "program-tests/programs/lines/lljit.cpp",
    "program-tests/programs/lines/foreign/src/bin/inkwell.rs",
    "program-tests/programs/lines/foreign/src/bin/cranelift.rs",
];

/// What counts are the lines between `// task: NAME` and `// end` that are neither empty nor comments.
#[test]
fn the_readme_counts_the_lines_of_tasks_as_they_are() {
    let Some(readme) = read("README.md") else { return };
    let texts = TASKS.map(|path| read(path).expect("the tasks have programs"));
    let rows = ["hello", "typed call", "own unit", "async", "unload", "plugin"].map(|task| {
        let counts: Vec<String> = texts.iter().map(|text| lines_of(text, task)).collect();
        format!("| {task} | {} |", counts.join(" | "))
    });
    let missing = rows.into_iter().filter(|row| !readme.lines().any(|line| line == row));
    demand_none(missing, "let the table of tasks in README.md have these rows");
}

fn lines_of(text: &str, task: &str) -> String {
    let lines = text.lines().map(str::trim);
    let begin = format!("// task: {task}");
    let inside = lines.skip_while(|line| *line != begin).skip(1).take_while(|line| *line != "// end");
    match inside.filter(|line| !line.is_empty() && !line.starts_with("//")).count() {
        0 => "cannot".to_owned(),
        lines => lines.to_string(),
    }
}
