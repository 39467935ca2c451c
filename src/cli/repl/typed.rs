//! Lines that are typed while code runs, before there is an editor for them.
//!
//! The terminal ends such a line by a line feed, which the editor's library takes for control-J: it reads several lines in one batch, ends
//! the first one, and drops the rest. So typed lines are taken out here, in their order, before the editor reads: those that the library
//! has read ahead, then those that lie in the terminal.
//!
//! While they are taken out, and until the editor has returned, Enter is a carriage return, which the library knows. So no line feed comes
//! to the editor in between.

use std::io::{self, stdin};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, OptionalActions, tcgetattr, tcsetattr};

/// Lines that were typed and not done yet.
#[derive(Debug, Default)]
pub(super) struct Typed {
    text: String,
    /// Whether control-D has ended the input behind the text.
    is_ended: bool,
}

impl Typed {
    /// Takes all that was typed so far, and lets Enter be a carriage return from here on.
    pub(super) fn take(&mut self) -> io::Result<()> {
        translate_enter(false)?;
        while event::poll(Duration::ZERO)? {
            self.add(&event::read()?);
        }
        let terminal = stdin();
        let mut bytes = [0; 4096];
        while !self.is_ended {
            let mut ready = [PollFd::new(&terminal, PollFlags::IN)];
            if poll(&mut ready, Some(&Timespec::default()))? == 0 {
                break;
            }
            // A line, or the beginning of one that the editor has not read.
            let count = rustix::io::read(&terminal, &mut bytes)?;
            self.is_ended = count == 0;
            self.text += &String::from_utf8_lossy(&bytes[..count]).replace('\r', "\n");
        }
        Ok(())
    }

    /// Lets Enter be a line feed, as programs expect it.
    pub(super) fn give_back(&self) -> io::Result<()> {
        translate_enter(true)
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

    fn add(&mut self, event: &Event) {
        let key = match event {
            Event::Paste(text) => return self.text += text,
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            _ => return,
        };
        match *key {
            KeyEvent { code: KeyCode::Enter, .. } => self.text.push('\n'),
            KeyEvent { code: KeyCode::Char('j'), modifiers: KeyModifiers::CONTROL, .. } => {
                self.text.push('\n');
            }
            KeyEvent { code: KeyCode::Char('d'), modifiers: KeyModifiers::CONTROL, .. } => {
                self.is_ended |= self.text.is_empty() || self.text.ends_with('\n');
            }
            KeyEvent { code: KeyCode::Backspace, .. } if !self.text.ends_with('\n') => {
                self.text.pop();
            }
            KeyEvent { code: KeyCode::Char(character), modifiers, .. }
                if !modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                self.text.push(character);
            }
            // Keys that move or search have nothing to move in.
            _ => {}
        }
    }
}

/// Whether the terminal makes a line feed of Enter.
fn translate_enter(translated: bool) -> io::Result<()> {
    let terminal = stdin();
    let mut attributes = tcgetattr(&terminal)?;
    attributes.input_modes.set(InputModes::ICRNL, translated);
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
}
