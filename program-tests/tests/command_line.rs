//! The command line as people guess it: verbs left out or misspelt, files that are missing, directories behind verbs.

use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::file;
use uruk_tests::process::{End, Input, run};
use uruk_tests::uruk::uruk;

/// How the command ends, and what it prints on either stream.
fn command(arguments: &[&str], stdin: &str) -> (End, String, String) {
    let mut command = Command::new(uruk());
    let input = Input { stdin: stdin.into(), ..Input::default() };
    let outcome = run(command.args(arguments), &input, Duration::from_secs(60)).expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (outcome.end, text(&outcome.stdout), text(&outcome.stderr))
}

const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 7; }\n";

#[test]
fn a_source_that_is_missing_is_said_to_be() {
    for arguments in [&["run", "nofile.c"][..], &["nofile.c"], &["opt", "nofile.c"]] {
        let (end, _, stderr) = command(arguments, "");
        assert_eq!(end, End::Exited(1), "{stderr}");
        assert!(stderr.starts_with("error: nofile.c: cannot be read\n  because: No such file"), "{stderr}");
    }
}

#[test]
fn options_may_stand_before_the_file() {
    let source = file("hello.c", HELLO.as_bytes()).expect("written");
    let source = source.to_str().expect("a path in UTF-8");
    for arguments in [&["-O0", source][..], &["-O0", "--lazy", source], &["-j", "1", source]] {
        assert_eq!(command(arguments, ""), (End::Exited(7), "hello\n".to_owned(), String::new()));
    }
    let (end, stdout, _) = command(&["--help", source], "");
    assert!(end == End::Exited(0) && stdout.contains("Usage:"), "{stdout}");
}

#[test]
fn a_source_may_come_from_standard_input() {
    assert_eq!(
        command(&["run", "-x", "c", "-"], HELLO),
        (End::Exited(7), "hello\n".to_owned(), String::new())
    );
    let cxx = "#include <cstdio>\nauto main() -> int { std::puts(\"hello\"); }\n";
    assert_eq!(command(&["-x", "c++", "-"], cxx), (End::Exited(0), "hello\n".to_owned(), String::new()));
    let (end, _, stderr) = command(&["run", "-x", "c", "-"], "int main(void) { return x; }\n");
    assert!(end == End::Exited(1) && stderr.contains("<stdin>:1:25: error:"), "{stderr}");
}

#[test]
fn the_verb_that_was_meant_is_named() {
    for (word, meant) in
        [("rnu", "run"), ("rum", "run"), ("repel", "repl"), ("cahce", "cache"), ("otp", "opt")]
    {
        let (end, _, stderr) = command(&[word, "a.c"], "");
        assert!(end == End::Exited(2) && stderr.contains(&format!("'{meant}'")), "{word}: {stderr}");
    }
}

#[test]
fn a_cache_may_be_named_behind_the_verb() {
    let source = file("hello.c", HELLO.as_bytes()).expect("written");
    let cache = source.with_file_name("a-cache");
    let (source, cache) = (source.to_str().expect("UTF-8"), cache.to_str().expect("UTF-8"));
    assert_eq!(command(&["run", "--cache", cache, source], "").0, End::Exited(7));
    for arguments in [&["cache", "stats", cache][..], &["cache", "verify", cache], &["cache", "gc", cache]] {
        let (end, stdout, stderr) = command(arguments, "");
        assert!(end == End::Exited(0) && stdout.starts_with(&format!("{cache}: ")), "{stderr}");
    }
    let (end, _, stderr) = command(&["cache", "stats"], "");
    assert!(end == End::Exited(1) && stderr.contains("uruk cache stats DIR"), "{stderr}");
}

#[test]
fn clang_has_a_row_in_the_statistics() {
    let source = file("hello.c", HELLO.as_bytes()).expect("written");
    let (_, _, stderr) = command(&["run", "--stats", source.to_str().expect("UTF-8")], "");
    assert!(stderr.contains("\nclang.compile "), "{stderr}");
}
