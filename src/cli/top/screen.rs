//! The figures on a screen of text.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};
use uruk_recorder::Reader;

use super::figures::{Figures, PRIORITIES, Stand};

/// The colour of each [`Stand`].
const COLOURS: [Color; 6] =
    [Color::Yellow, Color::Blue, Color::Magenta, Color::Green, Color::Red, Color::DarkGray];

/// Draws all of it.
pub(crate) fn draw(frame: &mut Frame<'_>, figures: &Figures, reader: &Reader, title: &str) {
    let threads = figures.threads.len().min(16);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(8),
        Constraint::Length(u16::try_from(threads + 1).unwrap_or(17)),
        Constraint::Min(3),
    ];
    let [head, sums, below, units] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, head, figures, reader, title);
    draw_sums(frame, sums, figures, reader);
    draw_threads(frame, below, figures, reader);
    draw_units(frame, units, figures);
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

fn quiet(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(Color::DarkGray))
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, figures: &Figures, reader: &Reader, title: &str) {
    let mut head = vec![
        bold(format!(" uruk top  {title}")),
        quiet(format!("  process {}  {}  {} notes", reader.process(), duration(figures.now), figures.notes)),
    ];
    if figures.lost > 0 {
        head.push(Span::styled(format!("  {} lost", figures.lost), Style::new().fg(Color::Red)));
    }
    frame.render_widget(Line::from(head), area);
}

fn draw_sums(frame: &mut Frame<'_>, area: Rect, figures: &Figures, reader: &Reader) {
    let counted = |names: &[&str], counts: &[u64], colours: &[Color]| {
        let parts = names.iter().zip(counts).zip(colours).filter(|((_, count), _)| **count > 0);
        let parts: Vec<_> = parts
            .flat_map(|((name, count), colour)| {
                [Span::styled(format!("{count} "), Style::new().fg(*colour)), quiet(format!("{name}   "))]
            })
            .collect();
        if parts.is_empty() { vec![quiet("none")] } else { parts }
    };
    let queue: Vec<_> = PRIORITIES.into_iter().chain(["blocked threads"]).collect();
    let queued: Vec<_> = figures.queued.into_iter().chain([figures.blocked]).collect();
    let queue_colours = [Color::Yellow, Color::Yellow, Color::Blue, Color::DarkGray, Color::Red];
    let lookup_colours = [Color::Blue, Color::Green, Color::Red, Color::DarkGray];
    let lookups = ["open", "answered", "failed", "withdrawn"];
    let cache = [figures.hits, figures.misses, figures.promoted];
    let lines = [
        ("units", counted(&Stand::NAMES, &figures.stands, &COLOURS)),
        ("symbols", counted(&["ready"], &[figures.ready], &[Color::Green])),
        ("queue", counted(&queue, &queued, &queue_colours)),
        ("lookups", counted(&lookups, &figures.lookups, &lookup_colours)),
        (
            "cache",
            counted(&["hits", "misses", "better bodies"], &cache, &[Color::Green, Color::Red, Color::Yellow]),
        ),
        ("resident", resident(figures, reader)),
    ];
    let lines = lines.into_iter().map(|(name, mut spans)| {
        spans.insert(0, quiet(format!(" {name:<10}")));
        Line::from(spans)
    });
    let block =
        Block::new().borders(Borders::TOP | Borders::BOTTOM).border_style(Style::new().fg(Color::DarkGray));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn resident(figures: &Figures, reader: &Reader) -> Vec<Span<'static>> {
    let mut owners: Vec<_> = figures.bytes.values().map(|(name, size)| (*size, reader.name(*name))).collect();
    owners.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u64 = owners.iter().fold(0, |sum, (size, _)| sum.saturating_add(*size));
    let mut spans = vec![bold(format!("{}   ", bytes(sum)))];
    spans.extend(owners.iter().take(4).map(|(size, name)| quiet(format!("{name} {}   ", bytes(*size)))));
    spans
}

fn draw_threads(frame: &mut Frame<'_>, area: Rect, figures: &Figures, reader: &Reader) {
    let mut threads: Vec<_> = figures.threads.iter().collect();
    threads.sort_unstable_by_key(|(thread, _)| **thread);
    let rows = threads.into_iter().map(|(thread, activities)| {
        let unit = activities.iter().rfind(|activity| activity.is_unit());
        let innermost = activities.last();
        let (phase, colour) = match innermost {
            None => ("idle".to_owned(), Color::DarkGray),
            Some(activity) if activity.is_blocked() => ("blocked".to_owned(), Color::Red),
            Some(activity) if activity.is_unit() => ("runs".to_owned(), Color::Blue),
            Some(activity) => (reader.name(activity.name), Color::Blue),
        };
        let unit = unit.map_or_else(String::new, |unit| reader.name(unit.name));
        let since = innermost.map(|activity| duration(figures.now.saturating_sub(activity.since)));
        Row::new([
            Line::from(format!(" {}", reader.thread_name(*thread))),
            Line::from(Span::styled(phase, Style::new().fg(colour))),
            Line::from(unit),
            Line::from(since.unwrap_or_default()).right_aligned(),
        ])
    });
    let widths =
        [Constraint::Length(22), Constraint::Length(22), Constraint::Min(16), Constraint::Length(12)];
    frame.render_widget(table(rows, widths, [" thread", "does", "unit", "for"]), area);
}

fn draw_units(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let mut units: Vec<_> = figures.units.iter().map(|(name, (time, times))| (*time, *times, name)).collect();
    units.sort_unstable_by(|a, b| b.cmp(a));
    let most = units.first().map_or(1, |unit| unit.0.max(1));
    let rows = units.into_iter().take(area.height.into()).map(|(time, times, name)| {
        let width = usize::try_from(time.saturating_mul(24).div_ceil(most)).unwrap_or(24).min(24);
        Row::new([
            Line::from(format!(" {name}")),
            Line::from(Span::styled("━".repeat(width), Style::new().fg(Color::Yellow))),
            Line::from(times.to_string()).right_aligned(),
            Line::from(duration(time)).right_aligned(),
        ])
    });
    let widths = [Constraint::Min(22), Constraint::Length(24), Constraint::Length(8), Constraint::Length(12)];
    frame.render_widget(table(rows, widths, [" unit", "", "times", "work"]), area);
}

fn table<'rows>(
    rows: impl Iterator<Item = Row<'rows>>,
    widths: [Constraint; 4],
    heads: [&'static str; 4],
) -> Table<'rows> {
    let [name, second, third, last] = heads;
    let heads = [Line::from(name), Line::from(second), Line::from(third), Line::from(last).right_aligned()];
    let style = Style::new().fg(Color::DarkGray).add_modifier(Modifier::BOLD);
    Table::new(rows, widths).header(Row::new(heads).style(style)).column_spacing(2)
}

fn duration(nanos: u64) -> String {
    let (scale, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{:.2} {unit}", nanos as f64 / scale)
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}
