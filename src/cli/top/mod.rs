//! `uruk top`: what a program does, in the terminal, from the recording that it writes.

mod figures;
mod screen;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use uruk_recorder::{OpenError, Reader};

use self::figures::Figures;
use super::flight::{self, NoFlight};

/// How often the screen is made anew.
const PERIOD: Duration = Duration::from_millis(250);

/// The size of the text that `--once` prints, at most.
const TEXT_SIZE: (u16, u16) = (100, 60);

/// `uruk top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// A recording, or the number of a process that runs or was ended; `last` is the one that began last.
    #[arg(value_name = "FILE|PID")]
    recording: PathBuf,

    /// Print the figures once, as text, and end.
    #[arg(long)]
    once: bool,
}

/// Why nothing is shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    #[error("{}: cannot be shown", path.display())]
    Recording { path: PathBuf, source: OpenError },
    #[error(transparent)]
    NoFlight(#[from] NoFlight),
    #[error("cannot draw on the terminal; without one, try --once")]
    Terminal(#[source] io::Error),
}

/// Shows a recording until `q` is pressed.
pub(crate) fn top(args: &TopArgs) -> Result<(), TopError> {
    let path = flight::file_of(&args.recording)?;
    let mut reader =
        Reader::open(&path).map_err(|source| TopError::Recording { path: path.clone(), source })?;
    let title = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shown = match args.once {
        true => io::stdout().lock().write_all(text(&mut reader, &title).as_bytes()),
        false => interactive(&mut reader, &title),
    };
    shown.map_err(TopError::Terminal)
}

fn interactive(reader: &mut Reader, title: &str) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let ended = watch(&mut terminal, reader, title);
    ratatui::try_restore()?;
    ended
}

fn watch(terminal: &mut ratatui::DefaultTerminal, reader: &mut Reader, title: &str) -> io::Result<()> {
    let mut figures = Figures::default();
    loop {
        figures.take(reader.read(), reader);
        terminal.draw(|frame| screen::draw(frame, &figures, reader, title))?;
        if event::poll(PERIOD)?
            && let Event::Key(key) = event::read()?
        {
            let interrupts = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            if interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
        }
    }
}

/// The screen as lines without colours.
fn text(reader: &mut Reader, title: &str) -> String {
    let mut figures = Figures::default();
    figures.take(reader.read(), reader);
    let (width, height) = TEXT_SIZE;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| screen::draw(frame, &figures, reader, title));
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(width.into()).map(|line| {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    let mut text: String = lines.collect();
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[cfg(test)]
mod tests {
    use uruk_recorder::{Entry, Kind, Script};

    use super::*;

    #[test]
    fn the_screen_says_what_happens() {
        let mut script = Script::new(64, 2);
        let [main, worker] = ["main", "uruk-worker-1"].map(|name| script.thread(name));
        let mut note = |thread, time: u64, kind, name: &str, a, b| {
            let name = script.name(name);
            script.note(thread, time * 1_000_000, Entry::new(kind).of(1).named(name).with(a, b));
        };
        note(main, 0, Kind::Lodged, "main", 1, 0);
        note(main, 0, Kind::Claimed, "main.ll", 11, 1);
        note(main, 0, Kind::Claimed, "late.ll", 12, 1);
        note(main, 0, Kind::Prioritized, "", 12, 0);
        note(worker, 1, Kind::Begun, "", 11, 0);
        note(worker, 3, Kind::Emitted, "", 11, 1);
        note(worker, 3, Kind::Ready, "main", 21, 11);
        note(worker, 3, Kind::Ended, "", 11, 0);
        note(worker, 4, Kind::Claimed, "big.ll", 13, 1);
        note(worker, 4, Kind::Begun, "", 13, 0);
        note(worker, 5, Kind::PhaseBegun, "ir.optimize", 13, 0);
        note(main, 6, Kind::Blocked, "", 1, 0);
        note(worker, 7, Kind::Bytes, "main dylib", 1, 5 << 20);
        let text = text(&mut script.reader(), "run.rec");
        for said in [
            "uruk top  run.rec",
            "7.00 ms",
            "1 queued   1 running   1 emitted",
            "1 idle   1 blocked threads",
            "1 open",
            "5.0 MiB   main dylib 5.0 MiB",
        ] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
        let line = |begin: &str| {
            let lines = text.lines().filter(|line| line.trim_start().starts_with(begin));
            lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(line("uruk-worker-1"), ["uruk-worker-1 ir.optimize big.ll 2.00 ms"]);
        assert_eq!(line("main "), ["main blocked 1.00 ms"]);
        assert_eq!(line("main.ll"), [format!("main.ll {} 1 2.00 ms", "━".repeat(24))]);
    }
}
