//! `uruk repl` on a terminal: what a person types, pastes and interrupts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use uruk_tests::inputs::file;
use uruk_tests::terminal::Terminal;
use uruk_tests::uruk::uruk;

/// A session, and a home of its own by this name.
fn session(name: &str) -> (Terminal, PathBuf) {
    let home =
        file("home", name.as_bytes()).expect("written").parent().expect("it lies in a directory").join(name);
    // An earlier session's lines would be hints.
    _ = fs::remove_dir_all(&home);
    fs::create_dir(&home).expect("it was removed");
    let mut command = Command::new(uruk());
    command.arg("repl").env("HOME", &home).env_remove("XDG_STATE_HOME");
    let mut terminal = Terminal::start(&mut command).expect("it starts");
    terminal.waits_for(":help helps");
    terminal.waits_for("> ");
    (terminal, home)
}

/// Begins each prompt: from here on the editor sees what is typed.
const PROMPT: &str = "\x1b[?2004h";

/// Ends each line that is typed: the answer of what has none.
const NOTHING: &str = "\x1b[?2004l";

/// Types a line at a prompt, waits for the answer and for the next prompt; what was printed up to the answer.
#[track_caller]
fn answer(terminal: &mut Terminal, line: &str, answer: &str) -> String {
    terminal.types(&format!("{line}\r"));
    let said = terminal.waits_for(answer);
    terminal.waits_for(PROMPT);
    terminal.waits_for("> ");
    said
}

/// Each of these ended the session at the first character that is not of ASCII, in the editor's hints.
#[test]
fn characters_of_all_languages_can_be_typed() {
    let (mut terminal, _) = session("unicode");
    answer(&mut terminal, "def mean(a b) (a + b) * 0.5 # Mittelwert für naïve Leute, 平均 🙂", NOTHING);
    for text in ["é", "é mean", "平均(", "mean(é", "(🙂(", "\u{301}"] {
        answer(&mut terminal, &format!("{text}\t "), "error: ");
    }
    answer(&mut terminal, "mean(1, 2)", "= 1.5\r\n");
}

#[test]
fn control_c_stops_what_runs_and_keeps_what_is_defined() {
    let (mut terminal, _) = session("interrupt");
    answer(&mut terminal, "def next(x) x + 1", NOTHING);
    answer(&mut terminal, "def spin(x) var a = printd(x) in for i = 1, 1 in next(i)", NOTHING);
    // In a loop that calls, and in one that does not.
    for endless in ["spin(77)", "var a = printd(77) in for i = 1, 1 in i"] {
        terminal.types(&format!("{endless}\r"));
        terminal.waits_for("77\r\n");
        terminal.types("\x03");
        terminal.waits_for("error: interrupted");
        terminal.waits_for(PROMPT);
        terminal.waits_for("> ");
    }
    answer(&mut terminal, "next(41)", "= 42\r\n");
}

#[test]
fn control_c_at_the_prompt_clears_the_line() {
    let (mut terminal, _) = session("clear");
    terminal.types("1 + nonsense");
    terminal.waits_for("nonsense");
    terminal.types("\x03");
    terminal.waits_for("> ");
    terminal.types("20 + 3\r");
    assert!(!terminal.waits_for("= 23\r\n").contains("error"));
}

/// Most of it lay unread, because the editor waited for another key.
#[test]
fn long_pastes_are_read_to_their_end() {
    let sum = format!("({})", ["1"; 6_000].join(" + ").replace(' ', ""));
    let definitions: String = (0..400).map(|n| format!("def function{n}(x y) x * y + {n}\n")).collect();
    for (name, paste, typed, answer) in [
        ("a-line", sum.clone(), "\r", "= 6000\r\n"),
        ("a-line-in-brackets", format!("\x1b[200~{sum}\x1b[201~"), "\r", "= 6000\r\n"),
        (
            "lines-in-brackets",
            format!("\x1b[200~{definitions}\x1b[201~\r"),
            "function399(1, 2)\r",
            "= 401\r\n",
        ),
    ] {
        let (mut terminal, _) = session(name);
        terminal.types(&paste);
        terminal.types(typed);
        let said = terminal.waits_for(answer);
        assert!(!said.contains("error"), "{name}: {said}");
    }
}

#[test]
fn a_paste_may_have_commands_and_mistakes_in_it() {
    let (mut terminal, _) = session("mixed");
    terminal.types("\x1b[200~\u{feff}def f(x) x * 2\n:tier f\nf(21)\nf(y)\nf(1000)\n\x1b[201~\r");
    terminal.waits_for("f(x): generation 1, not called yet");
    terminal.waits_for("= 42\r\n");
    terminal.waits_for("there is no variable `y` here");
    terminal.types("f(4)\r");
    assert!(!terminal.waits_for("= 8\r\n").contains("= 2000"), "what follows a mistake is not done");
}

/// The editor read them in one batch, took the first one, and dropped the others.
#[test]
fn lines_that_are_typed_while_code_runs_are_done_in_their_order() {
    let (mut terminal, _) = session("ahead");
    answer(&mut terminal, "extern getchar()", NOTHING);
    terminal.types("printd(77) + getchar()\r");
    terminal.waits_for("77\r\n");
    // The code waits for the first line, so all lines are there when it goes on.
    terminal.types("x\r20 + 1\r20 + 2\rdef later(x)\r  x + 3\rlater(20)\r20 + ");
    for line in ["= 21\r\n", "= 22\r\n", "= 23\r\n"] {
        terminal.waits_for(line);
    }
    terminal.types("4\r");
    terminal.waits_for("= 24\r\n");
    terminal.types("\x04");
    assert!(terminal.ends().success());
}

/// A control-D that came just before the editor began was lost: in 12 of 200 sessions.
#[test]
fn the_end_of_the_input_is_typed_ahead_too() {
    for _ in 0..20 {
        let (mut terminal, _) = session("end");
        answer(&mut terminal, "extern getchar()", NOTHING);
        terminal.types("printd(77) + getchar()\r");
        terminal.waits_for("77\r\n");
        terminal.types("x\r");
        terminal.waits_for(PROMPT);
        // The rest of the first line is there already, so this code does not wait, and the lines come at any moment.
        terminal.types("printd(78) + getchar()\r");
        terminal.waits_for("78\r\n");
        terminal.types("20 + 5\r\x04");
        terminal.waits_for("= 25\r\n");
        assert!(terminal.ends().success());
    }
}

#[test]
fn endless_recursion_is_an_error_and_the_session_goes_on() {
    let (mut terminal, _) = session("recursion");
    answer(&mut terminal, "def f(x) f(x + 1) + 1", NOTHING);
    for _ in 0..3 {
        answer(
            &mut terminal,
            "f(0)",
            "error: the stack is full: calls are nested too deep, or without end in `f`",
        );
    }
    answer(&mut terminal, "def even(x) odd(x - 1) + 1", NOTHING);
    answer(&mut terminal, "def odd(x) even(x - 1) + printd(x)", NOTHING);
    // Nothing is printed by frames that return because the stack is full.
    assert!(!answer(&mut terminal, "even(0)", "error: the stack is full").contains("NaN"));
    answer(&mut terminal, "def f(x) if x < 1 then 0 else f(x - 1) + 1", "f: generation 2");
    answer(&mut terminal, "f(10000)", "= 10000\r\n");
}

#[test]
fn lines_are_kept_when_the_session_is_killed() {
    let (mut terminal, home) = session("history");
    answer(&mut terminal, "def kept(x) x + 1", NOTHING);
    answer(&mut terminal, "kept(2)", "= 3\r\n");
    terminal.types("var a = printd(77) in for i = 1, 1 in i\r");
    terminal.waits_for("77\r\n");
    terminal.child.kill().expect("it runs");
    let history = fs::read_to_string(home.join(".local/state/uruk/repl-history")).expect("it was written");
    let lines: Vec<_> = history.lines().collect();
    assert_eq!(lines, ["def kept(x) x + 1", "kept(2)", "var a = printd(77) in for i = 1, 1 in i"]);
}

#[test]
fn words_that_people_guess_do_what_they_say() {
    let (mut terminal, _) = session("words");
    answer(&mut terminal, "help", ":why NAME");
    answer(&mut terminal, "def exit(x) x * 3", NOTHING);
    answer(&mut terminal, "exit(5)", "= 15\r\n");
    answer(&mut terminal, "exit", "there is no variable `exit`");
    terminal.types("quit()\r");
    assert!(terminal.ends().success());
}
