//! Lines that are typed while code runs, before there is an editor for them.
//!
//! The terminal ends such a line by a line feed, which the editor's library takes for control-J: it reads several lines in one batch, ends
//! the first one, and drops the rest. So typed lines are taken out here, in their order, before the editor reads.
//!
//! While they are taken out, and until the editor has returned, the terminal gives characters instead of lines, and Enter is a carriage
//! return, which the library knows. So neither a line feed nor the end of the input gets lost in between: where the terminal gives lines,
//! control-D is a read of nothing, which the library drops.

use std::io::{self, stdin};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::io::ioctl_fionread;
use rustix::termios::{InputModes, LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Control-D as a character.
const CONTROL_D: char = '\u{4}';

/// A control-D that was typed while the terminal gave lines, as a character.
const END: char = '\0';

/// Lines that were typed and not done yet.
#[derive(Debug, Default)]
pub(super) struct Typed {
    text: String,
    /// Whether control-D has ended the input behind the text.
    is_ended: bool,
}

impl Typed {
    /// Takes all that was typed so far, and lets the terminal give characters as they are from here on.
    pub(super) fn take(&mut self) -> io::Result<()> {
        give_lines(false)?;
        loop {
            let mut is_silent = true;
            while event::poll(Duration::ZERO)? {
                self.add(&event::read()?);
                is_silent = false;
            }
            if is_silent {
                return Ok(());
            }
            notice_what_is_typed();
        }
    }

    /// Lets the terminal give lines that end with a line feed, as programs expect it.
    pub(super) fn give_back(&self) -> io::Result<()> {
        give_lines(true)
    }

    /// The next lines that make something, as `is_complete` says.
    pub(super) fn next_complete(&mut self, is_complete: impl Fn(&str) -> bool) -> Option<String> {
        let ends = self.text.match_indices('\n').map(|(at, _)| at);
        let end = ends.into_iter().find(|&end| is_complete(&self.text[..end]))?;
        let rest = self.text.split_off(end + 1);
        let mut lines = std::mem::replace(&mut self.text, rest);
        lines.pop();
        Some(lines)
    }

    /// The beginning of what the editor goes on with.
    pub(super) fn take_rest(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Whether control-D was typed and nothing before it is left.
    pub(super) fn has_ended(&self) -> bool {
        self.is_ended && self.text.is_empty()
    }

    /// Adds a character. The end of the input is one only where a line begins, and nothing follows it.
    fn push(&mut self, character: char) {
        match character {
            _ if self.is_ended => {}
            CONTROL_D | END => self.is_ended = self.text.is_empty() || self.text.ends_with('\n'),
            '\r' => self.text.push('\n'),
            _ => self.text.push(character),
        }
    }

    fn add(&mut self, event: &Event) {
        let key = match event {
            Event::Paste(text) => return text.chars().for_each(|character| self.push(character)),
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            _ => return,
        };
        match *key {
            KeyEvent { code: KeyCode::Enter, .. } => self.push('\n'),
            KeyEvent { code: KeyCode::Char('j'), modifiers: KeyModifiers::CONTROL, .. } => self.push('\n'),
            KeyEvent { code: KeyCode::Char('d'), modifiers: KeyModifiers::CONTROL, .. } => {
                self.push(CONTROL_D);
            }
            // So the library calls a zero.
            KeyEvent { code: KeyCode::Char(' '), modifiers: KeyModifiers::CONTROL, .. } => self.push(END),
            KeyEvent { code: KeyCode::Backspace, .. } if !self.text.ends_with('\n') => {
                self.text.pop();
            }
            KeyEvent { code: KeyCode::Char(character), modifiers, .. }
                if !modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                self.push(character);
            }
            // Keys that move or search have nothing to move in.
            _ => {}
        }
    }
}

/// Lets the editor see what lies in the terminal's buffer. Its library hears of new characters only, and reads 1,024 at a time: the rest of
/// a long paste would wait for the next key. Setting the attributes, even to the same ones, wakes a thread that waits for characters.
pub(super) fn notice_what_is_typed() {
    let terminal = stdin();
    if ioctl_fionread(&terminal).is_ok_and(|waiting| waiting > 0) {
        // Where it fails, the next key helps.
        _ = tcgetattr(&terminal)
            .and_then(|attributes| tcsetattr(&terminal, OptionalActions::Now, &attributes));
    }
}

/// Whether the terminal gives lines, and makes a line feed of Enter.
fn give_lines(lines: bool) -> io::Result<()> {
    let terminal = stdin();
    let mut attributes = tcgetattr(&terminal)?;
    attributes.input_modes.set(InputModes::ICRNL, lines);
    attributes.local_modes.set(LocalModes::ICANON, lines);
    Ok(tcsetattr(&terminal, OptionalActions::Now, &attributes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_until_they_make_something() {
        let mut typed = Typed { text: "1\ndef f(x)\nx\n4".to_owned(), is_ended: true };
        let is_complete = |text: &str| !text.ends_with(')');
        assert_eq!(typed.next_complete(is_complete).as_deref(), Some("1"));
        assert_eq!(typed.next_complete(is_complete).as_deref(), Some("def f(x)\nx"));
        assert_eq!(typed.next_complete(is_complete), None);
        assert!(!typed.has_ended());
        assert_eq!(typed.take_rest(), "4");
        assert!(typed.has_ended());
    }

    #[test]
    fn keys_that_were_read_ahead_make_lines() {
        let mut typed = Typed::default();
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        for code in
            [KeyCode::Char('1'), KeyCode::Char('2'), KeyCode::Backspace, KeyCode::Left, KeyCode::Enter]
        {
            typed.add(&key(code, KeyModifiers::NONE));
        }
        typed.add(&key(KeyCode::Backspace, KeyModifiers::NONE));
        typed.add(&key(KeyCode::Char('d'), KeyModifiers::CONTROL));
        assert_eq!((typed.text.as_str(), typed.is_ended), ("1\n", true));
    }

    #[test]
    fn the_end_of_the_input_is_one_where_a_line_begins() {
        for end in [CONTROL_D, END] {
            let mut typed = Typed::default();
            for character in ['1', end, '\r', end, '2'] {
                typed.push(character);
            }
            assert_eq!((typed.text.as_str(), typed.is_ended), ("1\n", true));
        }
    }
}
