//! `uruk repl`: the session in the README, mistakes with their places, programs from files and from pipes, and memory that stays level.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use uruk_tests::inputs::file;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Runs `uruk repl` with this standard input.
fn repl(arguments: &[&str], input: &str) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("repl").args(arguments);
    let input = Input { stdin: input.as_bytes().to_vec(), ..Input::default() };
    run(&mut command, &input, Duration::from_secs(60)).expect("the command can be started")
}

fn texts(outcome: &Outcome) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&outcome.stdout), text(&outcome.stderr))
}

/// The output, errors among it, as on a terminal.
fn conversation(input: &str) -> String {
    let path = file("repl-conversation", b"").expect("written");
    fs::write(&path, b"").expect("an earlier conversation is gone");
    let open = || File::options().append(true).open(&path).expect("it was just written");
    let mut command = Command::new(uruk());
    let mut child =
        command.arg("repl").stdin(Stdio::piped()).stdout(open()).stderr(open()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it listens");
    child.wait().expect("it ends");
    fs::read_to_string(&path).expect("it is text")
}

fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A session is a block that begins with the command. In it, people's lines begin with `> `.
#[test]
fn the_sessions_in_the_documents_are_true() {
    for (page, least) in [("README.md", 5), ("kaleidoscope/README.md", 15)] {
        let text = fs::read_to_string(workspace(page)).expect("it is there");
        let (_, after) = text.split_once("```text\n$ uruk repl\n").expect("the page has a session");
        let (session, _) = after.split_once("```").expect("the block ends");
        let mut lines = session.lines().peekable();
        let (mut typed, mut answered, mut count) = (String::new(), String::new(), 0);
        while let Some(line) = lines.next() {
            typed += line.strip_prefix("> ").expect("what is typed stands behind `> `");
            typed.push('\n');
            count += 1;
            while let Some(answer) = lines.next_if(|line| !line.starts_with("> ")) {
                answered = answered + answer + "\n";
            }
            // From the beginning each time, so that each answer stands below its line.
            assert_eq!(conversation(&typed), answered, "{page}, at {line}");
        }
        assert!(count >= least, "{page}: the session has {count} lines");
    }
}

#[test]
fn a_pipe_is_answered_and_goes_on_after_mistakes() {
    let outcome = repl(&[], "def f(x)\n  g(x)\nf(1)\ndef g(x) x + 1\nf(1) f(2)\n1 +\n");
    let (stdout, stderr) = texts(&outcome);
    assert_eq!((stdout.as_str(), outcome.end), ("= 2\n= 3\n", End::Exited(1)));
    let mistakes = "error: nobody has defined `g`\n --> input:2:3\n  |\n2 |   g(x)\n  |   ^\n\
                    error: an expression should follow\n --> input:6:4\n  |\n6 | 1 +\n  |    ^\n";
    assert_eq!(stderr, mistakes);
    assert_eq!(repl(&[], "1 + 1\n:quit\nnonsense\n").end, End::Exited(0));
    assert_eq!(repl(&["-"], "").end, End::Exited(0));
}

#[test]
fn a_file_ends_at_its_first_mistake_whose_place_is_told() {
    let program =
        file("repl-mistake.k", b"# comment\ndef f(value)\n  vlaue + 1\nprintd(1)\n").expect("written");
    let name = program.to_str().expect("a path in UTF-8");
    let outcome = repl(&[name], "");
    let (stdout, stderr) = texts(&outcome);
    assert_eq!((stdout.as_str(), outcome.end), ("", End::Exited(1)));
    let place =
        format!("there is no variable `vlaue` here\n --> {name}:3:3\n  |\n3 |   vlaue + 1\n  |   ^^^^^\n");
    assert!(stderr.contains(&place) && stderr.contains("is `value` meant?"), "{stderr}");

    let missing = repl(&["no-such.k"], "");
    assert!(texts(&missing).1.starts_with("error: no-such.k: cannot be read"), "{}", texts(&missing).1);
    assert_eq!(missing.end, End::Exited(1));
}

#[test]
fn commands_answer_and_say_what_was_meant() {
    let program = file("repl-loaded.k", b"def twice(x) x * 2\n").expect("written");
    let input = format!(
        ":load {}\n:tier twice\n:why twice\ntwice(4)\n:tier twice\n:ir twice\n:asm twice\n:list\n:time\ntwice(1)\ndef f(x) x\n:help\n",
        program.display()
    );
    let outcome = repl(&["-O2"], &input);
    let (stdout, stderr) = texts(&outcome);
    assert_eq!((stderr.as_str(), outcome.end), ("", End::Exited(0)));
    let expected = [
        "twice(x): generation 1, not called yet, so there is no code\n",
        "`twice$1` (dylib `bodies`) is defined by unit `twice$1`; nobody has looked for it\n= 8\n",
        "twice(x): generation 1, compiled at O2\n",
        "define double @\"twice$1\"(double %x)",
        "fmul double %x, 2.0",
        "twice$1:\n",
        "addsd",
        "times are shown\n= 2\n  parse ",
        ", compile ",
        ", define ",
        ":why NAME",
    ];
    let mut rest = &*stdout;
    for words in expected {
        rest = rest.split_once(words).unwrap_or_else(|| panic!("`{words}` is missing in\n{stdout}")).1;
    }

    let outcome = repl(&[], ":tierr f\ndef fib(x) x\n:why fbi\n:ir\n:nonsense\n:load nowhere.k\n");
    let (stdout, stderr) = texts(&outcome);
    assert_eq!((stdout.as_str(), outcome.end), ("", End::Exited(1)));
    let expected = "error: there is no command :tierr; is :tier meant?\n\
                    error: there is no function `fbi`; is `fib` meant?\n\
                    error: :ir needs a word more: :ir NAME\n\
                    error: there is no command :nonsense; :help lists them\n\
                    error: nowhere.k: cannot be read";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[test]
fn output_of_a_program_and_answers_share_no_line() {
    let outcome = repl(&[], "putchard(72) + putchard(105)\nprintd(0.5)\n");
    assert_eq!(texts(&outcome), ("Hi\n= 0\n0.5\n= 0\n".to_owned(), String::new()));
}

/// How soon a point leaves, as the program computes it.
fn depth(real: f64, imag: f64) -> f64 {
    let (mut x, mut y, mut steps) = (real, imag, 0.0);
    while !(steps > 255.0 || x * x + y * y > 4.0) {
        (x, y, steps) = (x * x - y * y + real, 2.0 * x * y + imag, steps + 1.0);
    }
    steps
}

/// The picture as this test draws it. A loop runs once more than its condition says, as in the tutorial.
fn mandelbrot() -> String {
    let mut picture = String::new();
    let (real, imag, real_step, imag_step) = (-2.3, -1.3, 0.05, 0.07);
    let mut y = imag;
    loop {
        let mut x = real;
        loop {
            let depth = depth(x, y);
            picture.push(match depth {
                depth if depth > 8.0 => ' ',
                depth if depth > 4.0 => '.',
                depth if depth > 2.0 => '+',
                _ => '*',
            });
            let goes_on = x < real + real_step * 78.0;
            x += real_step;
            if !goes_on {
                break;
            }
        }
        picture.push('\n');
        let goes_on = y < imag + imag_step * 40.0;
        y += imag_step;
        if !goes_on {
            return picture;
        }
    }
}

#[test]
fn the_mandelbrot_set_of_the_tutorial_is_drawn() {
    let program = workspace("examples/kaleidoscope/mandelbrot.k").canonicalize().expect("it is there");
    for level in ["-O0", "-O2"] {
        let outcome = repl(&[level, program.to_str().expect("a path in UTF-8")], "");
        let (stdout, stderr) = texts(&outcome);
        assert_eq!((stderr.as_str(), outcome.end), ("", End::Exited(0)));
        assert_eq!(stdout, mandelbrot() + "= 0\n", "{level}");
    }
}

/// How many lines the memory is watched over: `URUK_REPL_LINES=100000` is what is promised, and takes a minute or two.
fn lines() -> u64 {
    std::env::var("URUK_REPL_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(3_000)
}

/// How much more may be resident at the end than after the first tenth: tables grow by doubling.
const GROWTH_KIB_MAX: u64 = 4 << 10;

#[test]
fn memory_stays_level() {
    let mut command = Command::new(uruk());
    let child = command.arg("repl").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let resident_kib = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        resident.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let lines = lines();
    let mut early = 0;
    for line in 0..lines {
        // Functions come anew, are called, and fail, among expressions that run.
        let (text, answer) = match line % 50 {
            0 => (format!("def f(x) x + {line}\nf({line})"), format!("= {}", 2 * line)),
            _ => (format!("f({line})"), format!("= {}", line + line - line % 50)),
        };
        writeln!(stdin, "{text}").expect("it listens");
        let mut said = answers.next().expect("it answers").expect("text");
        if said.starts_with("f: generation") {
            said = answers.next().expect("it answers").expect("text");
        }
        assert_eq!(said, answer);
        if line == lines / 10 {
            early = resident_kib();
        }
    }
    let late = resident_kib();
    assert!(
        late <= early + GROWTH_KIB_MAX,
        "{early} KiB after {} lines, {late} KiB after {lines}",
        lines / 10
    );
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}
