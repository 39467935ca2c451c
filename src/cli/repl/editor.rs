//! The line editor of a terminal: colours, hints, a menu of words, lines of earlier sessions, and lines that go on until they make something.

use std::path::PathBuf;

use nu_ansi_term::{Color, Style};
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, DefaultPrompt, DefaultPromptSegment,
    EditCommand, Emacs, FileBackedHistory, Highlighter, Hinter, History, KeyCode, KeyModifiers,
    MenuBuilder as _, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, StyledText, Suggestion,
    ValidationResult, Validator, default_emacs_keybindings,
};
use uruk::core::sync::{Arc, Mutex};
use uruk_kaleidoscope::{Operators, Source, TokenKind, is_blank, keywords, parse, tokens};

use super::commands::COMMANDS;
use super::typed::{Typed, notice_what_is_typed};
use super::{AfterError, INPUT, Repl, ReplError, host};
use crate::cli::defect;

/// The editor's knowledge of the program.
#[derive(Default)]
struct Known {
    operators: Operators,
    /// How functions are called: `fib(n)`.
    heads: Vec<String>,
}

/// Reads and does lines until the end of the session.
pub(super) fn edit(repl: &mut Repl) -> Result<(), ReplError> {
    let known = Arc::new(Mutex::new(Known::default()));
    let mut editor = editor(&known);
    let prompt = DefaultPrompt::new(DefaultPromptSegment::Basic("uruk".into()), DefaultPromptSegment::Empty);
    host::say("Kaleidoscope on Uruk: functions are compiled when they are first called. :help helps.");
    let (name, mut line, mut panics) = (INPUT.into(), 1, 0);
    let mut typed = Typed::default();
    while !repl.has_quit {
        typed.take().map_err(ReplError::Terminal)?;
        if typed.has_ended() {
            typed.give_back().map_err(ReplError::Terminal)?;
            break;
        }
        let ahead = typed.next_complete(|text| !goes_on(text, &known));
        editor = editor.with_immediately_accept(ahead.is_some());
        let begun = ahead.unwrap_or_else(|| typed.take_rest());
        if !begun.is_empty() {
            editor.run_edit_commands(&[EditCommand::InsertString(begun)]);
        }
        let read = defect::guard(|| editor.read_line(&prompt));
        typed.give_back().map_err(ReplError::Terminal)?;
        let text = match read {
            Some(read) => match read.map_err(ReplError::Terminal)? {
                Signal::Success(text) => text,
                Signal::CtrlD => break,
                _ => continue,
            },
            // The line is lost, and all else is kept. An editor that can do nothing else ends the session.
            None if panics < PANICS_MAX => {
                panics += 1;
                editor = self::editor(&known);
                continue;
            }
            None => return Err(ReplError::Editor),
        };
        panics = 0;
        // Before the line is done: it may be the last one. Lines that cannot be stored are known in this session.
        _ = editor.sync_history();
        repl.session.forget_stop();
        repl.read(&name, line, text.as_bytes(), AfterError::Stop).map_err(ReplError::Terminal)?;
        line += text.lines().count();
        host::end_line();
        let session = &repl.session;
        *known.lock() = Known { operators: session.operators().clone(), heads: session.heads().collect() };
    }
    Ok(())
}

/// How many times in a row the editor is begun anew.
const PANICS_MAX: usize = 3;

fn editor(known: &Arc<Mutex<Known>>) -> Reedline {
    let dim = Style::new().fg(Color::DarkGray);
    let hints =
        Hints { known: known.clone(), history: DefaultHinter::default().with_style(dim), shown: None };
    let editor = Reedline::create()
        .with_highlighter(Box::new(Colours))
        .with_hinter(Box::new(hints))
        .with_validator(Box::new(Completeness(known.clone())))
        .with_completer(Box::new(Words(known.clone())))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
        .with_edit_mode(Box::new(keys()))
        .use_bracketed_paste(true);
    // Without a place for it, only this session's lines are known.
    match history_file().and_then(|file| FileBackedHistory::with_file(LINES_KEPT, file).ok()) {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

const MENU: &str = "words";

/// How many lines of earlier sessions are kept.
const LINES_KEPT: usize = 10_000;

/// Where the lines of earlier sessions are, as the XDG base directory specification says.
fn history_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("uruk/repl-history"))
}

/// The keys of Emacs, and tabulator for the menu of words.
fn keys() -> Emacs {
    let mut keys = default_emacs_keybindings();
    let menu = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(menu));
    Emacs::new(keys)
}

/// Lists how the word before the cursor may go on: commands, functions, words of the language.
struct Words(Arc<Mutex<Known>>);

impl Completer for Words {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        CompletionResult::fresh(suggestions(&line[..pos], &self.0.lock().heads))
    }
}

fn suggestions(before: &str, heads: &[String]) -> Vec<Suggestion> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = before.trim_end_matches(is_of_word).len();
    let word = &before[start..];
    let suggest = |value: &str, description: Option<&str>| Suggestion {
        value: value.to_owned(),
        description: description.map(str::to_owned),
        span: Span::new(start, before.len()),
        ..Suggestion::default()
    };
    if before[..start].trim() == ":" {
        let commands = COMMANDS.iter().filter(|(name, ..)| name.starts_with(word));
        return commands.map(|(name, _, does)| suggest(name, Some(does))).collect();
    }
    let functions = heads.iter().map(|head| (head.split('(').next().unwrap_or(head), Some(&**head)));
    let words = keywords().map(|keyword| (keyword, None)).chain(functions);
    words.filter(|(name, _)| name.starts_with(word)).map(|(name, head)| suggest(name, head)).collect()
}

/// Goes on to another line where a program only breaks off. An empty line ends it all the same.
struct Completeness(Arc<Mutex<Known>>);

impl Validator for Completeness {
    fn validate(&self, text: &str) -> ValidationResult {
        match goes_on(text, &self.0) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Complete,
        }
    }
}

/// Whether a text is the beginning of something.
fn goes_on(text: &str, known: &Mutex<Known>) -> bool {
    let is_ended = text.trim_start_matches(is_blank).starts_with(':') || text.ends_with('\n');
    let mut operators = known.lock().operators.clone();
    let source = Source { name: INPUT.into(), first_line: 1, text: text.to_owned() };
    let parsed = parse(&Arc::new(source), &mut operators);
    parsed.is_err_and(|error| error.is_incomplete) && !is_ended
}

/// Colours the words of a line by what they are.
struct Colours;

impl Highlighter for Colours {
    fn highlight(&self, text: &str, _cursor: usize) -> StyledText {
        notice_what_is_typed();
        let mut styled = StyledText::new();
        let mut done = 0;
        for token in tokens(text) {
            let (start, end) = (token.span.start, token.span.end);
            let style = match token.kind {
                _ if text.trim_start().starts_with(':') => Style::new().fg(Color::Purple),
                TokenKind::Identifier if text[end..].starts_with('(') => Style::new().fg(Color::LightBlue),
                TokenKind::Identifier => Style::new(),
                TokenKind::Number(Some(_)) => Style::new().fg(Color::Cyan),
                TokenKind::Number(None) => Style::new().fg(Color::LightRed),
                TokenKind::Symbol(_) => Style::new().fg(Color::Yellow),
                TokenKind::Comment => Style::new().fg(Color::DarkGray),
                _ => Style::new().fg(Color::LightMagenta).bold(),
            };
            styled.push((Style::new(), text[done..start].to_owned()));
            styled.push((style, text[start..end].to_owned()));
            done = end;
        }
        styled.push((Style::new(), text[done..].to_owned()));
        styled
    }
}

/// Shows how a word may go on: a command, the parameters of a function, or a line that was typed before.
struct Hints {
    known: Arc<Mutex<Known>>,
    history: DefaultHinter,
    /// The hint, unless it is one of the history's.
    shown: Option<String>,
}

impl Hinter for Hints {
    fn handle(
        &mut self,
        line: &str,
        pos: usize,
        history: &dyn History,
        use_ansi_coloring: bool,
        cwd: &str,
    ) -> String {
        let from_history = self.history.handle(line, pos, history, use_ansi_coloring, cwd);
        self.shown = if pos == line.len() { hint(line, &self.known.lock().heads) } else { None };
        match &self.shown {
            Some(hint) if use_ansi_coloring => Style::new().fg(Color::DarkGray).paint(hint).to_string(),
            Some(hint) => hint.clone(),
            None => from_history,
        }
    }

    fn complete_hint(&self) -> String {
        self.shown.clone().unwrap_or_else(|| self.history.complete_hint())
    }

    fn next_hint_token(&self) -> String {
        self.shown.clone().unwrap_or_else(|| self.history.next_hint_token())
    }
}

/// How the last word of a line may go on.
fn hint(line: &str, heads: &[String]) -> Option<String> {
    let rest = |whole: &str, begun: &str| {
        whole.strip_prefix(begun).filter(|rest| !rest.is_empty()).map(str::to_owned)
    };
    if let Some(word) = line.strip_prefix(':') {
        return COMMANDS.iter().filter(|_| !word.is_empty()).find_map(|(name, ..)| rest(name, word));
    }
    let is_of_call = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '(';
    let call = &line[line.trim_end_matches(is_of_call).len()..];
    // A name, with the parenthesis behind it if that is the last character.
    let name = call.strip_suffix('(').unwrap_or(call);
    let word = &call[name.rfind('(').map_or(0, |at| at + "(".len())..];
    heads.iter().filter(|_| word.len() > 1).find_map(|head| rest(head, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_go_on_with_commands_and_calls() {
        let heads = ["fib(n)".to_owned(), "mean(a b)".to_owned()];
        assert_eq!(hint(":ti", &heads).as_deref(), Some("er"));
        assert_eq!(hint("1 + me", &heads).as_deref(), Some("an(a b)"));
        assert_eq!(hint("fib(", &heads).as_deref(), Some("n)"));
        assert_eq!(hint("fib(mean(", &heads).as_deref(), Some("a b)"));
        assert_eq!(hint("é + me", &heads).as_deref(), Some("an(a b)"));
        assert_eq!(hint("€fib(", &heads).as_deref(), Some("n)"));
        assert_eq!((hint("é", &heads), hint("fib(é", &heads), hint("名前(", &heads)), (None, None, None));
        assert_eq!((hint("fib(3)", &heads), hint("", &heads), hint(":", &heads)), (None, None, None));
    }

    #[test]
    fn the_menu_has_commands_functions_and_words() {
        let heads = ["fib(n)".to_owned(), "mean(a b)".to_owned()];
        let listed = |line: &str| -> Vec<(String, usize)> {
            let suggestions = suggestions(line, &heads).into_iter();
            suggestions.map(|suggestion| (suggestion.value, suggestion.span.start)).collect()
        };
        assert_eq!(listed(":ti"), [("tier".to_owned(), 1), ("time".to_owned(), 1)]);
        assert_eq!(listed(":why f"), [("for".to_owned(), 5), ("fib".to_owned(), 5)]);
        assert_eq!(listed("1+me"), [("mean".to_owned(), 2)]);
        assert_eq!(listed("é + unknown"), []);
    }

    #[test]
    fn lines_go_on_until_they_make_something() {
        let completeness = Completeness(Arc::new(Mutex::new(Known::default())));
        let goes_on = |text| matches!(completeness.validate(text), ValidationResult::Incomplete);
        assert!(goes_on("def f(x)") && goes_on("if 1 then 2") && goes_on("f(1,"));
        assert!(
            !goes_on("def f(x) x") && !goes_on("def f(x) )") && !goes_on(":why") && !goes_on("def f(x)\n")
        );
    }

    #[test]
    fn colours_leave_the_text_as_it_is() {
        let text = "def f(x) x + 1.2.3 # é\n ; ?";
        let parts = Colours.highlight(text, 0).buffer;
        assert_eq!(parts.into_iter().map(|(_, part)| part).collect::<String>(), text);
    }
}
