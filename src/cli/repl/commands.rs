//! Lines that begin with a colon: questions about the program, and a few orders.

use std::path::Path;

use uruk_kaleidoscope::{is_blank, nearest};

use super::{Repl, host};

/// A command: its word, what follows it, and what it does.
type ReplCommand = (&'static str, &'static str, &'static str);

pub(super) const COMMANDS: [ReplCommand; 9] = [
    ("why", "NAME", "what the engine knows of a function's body"),
    ("ir", "NAME", "its LLVM IR, after the passes of the level"),
    ("asm", "NAME", "its assembly"),
    ("tier", "NAME", "whether it is compiled, and how many bodies it has had"),
    ("list", "", "all functions"),
    ("time", "", "say how long each line takes, or no longer"),
    ("load", "FILE", "do what a file says"),
    ("help", "", "this, and the language in ten lines; so does help"),
    ("quit", "", "leave; so do quit, exit and control-D"),
];

const LANGUAGE: &str = "\
Kaleidoscope, the language of LLVM's tutorial. All values are numbers.
  def fib(n) if n < 3 then 1 else fib(n-1) + fib(n-2)     a function; it may be defined anew at any time
  extern sin(x)                                           a function of the C library
  def unary!(v) if v then 0 else 1                        an operator with one operand
  def binary: 1 (a b) b                                   one with two, and its precedence: 1 binds least, 100 most
  var a = 1, b in …   a = 2   for i = 1, i < n, step in … variables; a loop runs once before it asks
  < 10, + - 20, * 40                                      the operators that there are
  putchard(42)   printd(42)                               print a character, a number
Nothing is compiled before it is called. A function may call what is not defined yet.
Control-C stops an expression that runs, and clears a line that is typed.";

/// Words that people try at a prompt, which are commands unless the program has such a function.
const GUESSED: [&str; 3] = ["help", "quit", "exit"];

impl Repl {
    /// The command that a line is, without its colon.
    pub(super) fn command_of<'l>(&self, line: &'l str) -> Option<&'l str> {
        let line = line.trim_matches(is_blank);
        let word = line.strip_suffix("()").unwrap_or(line);
        let is_guessed = GUESSED.contains(&word) && !self.session.is_callable(word);
        if is_guessed { Some(word) } else { line.strip_prefix(':') }
    }

    /// Does what stands behind a colon.
    pub(super) fn command(&mut self, line: &str) {
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        match (word, rest) {
            ("help" | "h" | "?", _) => help(),
            ("quit" | "q" | "exit", _) => self.has_quit = true,
            ("list", _) => self.list(),
            ("time", _) => {
                self.shows_times ^= true;
                host::say(if self.shows_times { "times are shown" } else { "times are not shown" });
            }
            ("load" | "why" | "ir" | "asm" | "tier", "") => {
                let what = COMMANDS.iter().find(|(name, ..)| *name == word).map_or("", |(_, what, _)| *what);
                self.refuse(&format!(":{word} needs a word more: :{word} {what}"));
            }
            ("load", file) => {
                if let Err(error) = self.load(Path::new(file)) {
                    self.refuse(&uruk::core::WithCauses(&error).to_string());
                }
            }
            ("why", name) => {
                let why = self.session.why(name).map(|why| why.to_string());
                self.say_of(name, why);
            }
            ("tier", name) => {
                let tier = self.session.tier(name).map(|tier| tier.to_string());
                self.say_of(name, tier);
            }
            ("ir" | "asm", name) => {
                let text = if word == "ir" { self.session.ir(name) } else { self.session.assembly(name) };
                match text {
                    Some(Err(error)) => self.say_error(&error),
                    Some(Ok(text)) => host::say(text.trim_end()),
                    None => self.say_of(name, None),
                }
            }
            (word, _) => {
                let meant = nearest(word, COMMANDS.iter().map(|(name, ..)| *name));
                let meant =
                    meant.map_or(":help lists them".to_owned(), |meant| format!("is :{meant} meant?"));
                self.refuse(&format!("there is no command :{word}; {meant}"));
            }
        }
    }

    fn list(&self) {
        for name in self.session.names() {
            if let Some(tier) = self.session.tier(name) {
                host::say(&tier.to_string());
            }
        }
    }

    /// Says what is known of a function, or that there is none.
    fn say_of(&mut self, name: &str, known: Option<String>) {
        match known {
            Some(known) => host::say(&known),
            None => {
                let meant = nearest(name, self.session.names());
                let meant = meant.map_or(String::new(), |meant| format!("; is `{meant}` meant?"));
                self.refuse(&format!("there is no function `{name}`{meant}"));
            }
        }
    }

    fn refuse(&mut self, message: &str) {
        self.say_error(&super::SessionError::Call(message.to_owned()));
    }
}

fn help() {
    host::say(LANGUAGE);
    host::say("Commands:");
    for (name, what, does) in COMMANDS {
        host::say(&format!("  {:<12} {does}", format!(":{name} {what}")));
    }
}
