//! The page in a browser, by what it shows.

use std::path::Path;

use serde_json::json;
use uruk::prelude::*;

use crate::browser::{Browser, say};
use crate::recording::{Recording, chain};

/// Waits until all notes are in, and the tables are filled.
fn all_notes(browser: &mut Browser, count: usize) {
    browser.wait(&format!("document.documentElement.dataset.notes >= {count}"));
    browser.wait("document.getElementById('figures').textContent.includes('notes')");
}

fn tab(browser: &mut Browser, name: &str) -> String {
    browser.value(&format!("document.getElementById('tab-{name}').click()"));
    browser.text(&format!("document.getElementById('{name}').innerText"))
}

#[test]
fn a_recording_is_shown_as_it_was() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let recording = Recording::of("chain", &chain());
    let dashboard = recording.dashboard();
    browser.open(dashboard.url());
    all_notes(&mut browser, 30);
    browser.wait("document.getElementById('units-value').textContent === '3'");
    assert_eq!(browser.text("document.getElementById('units-bar').ariaLabel"), "1 queued, 2 emitted");
    assert_eq!(browser.text("document.getElementById('queue-bar').ariaLabel"), "1 demanded");
    assert_eq!(browser.text("document.getElementById('lookups-bar').ariaLabel"), "2 answered, 1 open");
    assert_eq!(browser.text("document.getElementById('bytes-value').textContent"), "3.0 MiB");
    assert!(browser.text("document.getElementById('canvas').ariaLabel").contains("3 threads, 6 slices"));

    // The slowest lookup took 20 ms: 1 in the queue, 1 of work, 2 in the queue of what it needed,
    // 7 of work there until that was answered, 9 of work.
    tab(&mut browser, "path");
    browser.wait("document.querySelectorAll('#path .step').length === 5");
    let path = tab(&mut browser, "path");
    assert!(path.contains("20.0 ms"), "{path}");
    assert!(path.contains("17.0 ms work") && path.contains("3.00 ms in the queue"), "{path}");
    assert!(path.contains("uruk-worker-2"), "{path}");

    let waiting = tab(&mut browser, "waiting");
    assert!(waiting.contains("1 lookups wait") && waiting.contains("lost.ll"), "{waiting}");
    let units = tab(&mut browser, "units");
    assert!(units.find("main.ll") < units.find("helper.ll") && units.contains("19.0 ms"), "{units}");
    let memory = tab(&mut browser, "memory");
    assert!(memory.contains("main dylib"), "{memory}");
    let view = tab(&mut browser, "view");
    assert!(view.contains("ir.generate") && view.contains("(blocked)"), "{view}");
    // A name is text, never markup.
    assert!(view.contains("<img src=x"), "{view}");
    assert_eq!(browser.value("document.querySelectorAll('main img').length"), json!(0));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn slices_are_reached_by_mouse_and_by_keys() {
    let Some(mut browser) = Browser::start("light") else { return };
    let recording = Recording::of("keys", &chain());
    let dashboard = recording.dashboard();
    browser.open(dashboard.url());
    all_notes(&mut browser, 30);
    let place = browser.value(
        "(() => { const box = canvas.getBoundingClientRect(); return [box.left + 148 + (box.width - 148) * 0.3, box.top + 60 + 9 + 26 + 8]; })()",
    );
    let [x, y] = [0, 1].map(|at| place[at].as_f64().expect("a number"));
    browser.click(x, y);
    browser.wait("selection.innerText.includes('main.ll')");
    assert!(browser.text("selection.innerText").contains("uruk-worker-1"));
    // A phase deeper, then the one beside it.
    browser.press("ArrowDown");
    browser.wait("summary.textContent.includes('blocked')");
    browser.press("]");
    browser.wait("summary.textContent.includes('ir.optimize')");
    browser.press("[");
    browser.press("[");
    browser.wait("summary.textContent.includes('ir.read')");
    browser.press("Enter");
    browser.press("0");
    browser.press("?");
    browser.wait("keys.open");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn everything_has_a_name_for_those_who_cannot_see_it() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let recording = Recording::of("names", &chain());
    let dashboard = recording.dashboard();
    browser.open(dashboard.url());
    all_notes(&mut browser, 30);
    let unnamed = browser.value(
        "[...document.querySelectorAll('button, input, select, canvas, [role=img], [role=tabpanel], section')].filter((each) => \
         !(each.innerText || each.ariaLabel || each.labels?.length || each.getAttribute('aria-labelledby'))).map((each) => each.outerHTML)",
    );
    assert_eq!(unnamed, json!([]));
    assert_eq!(browser.text("document.documentElement.lang"), "en");
    // Text on its ground has the contrast that WCAG asks for, by night and by day.
    for scheme in ["dark", "light"] {
        let Some(mut browser) = Browser::start(scheme) else { return };
        browser.open(dashboard.url());
        let poor = browser.value(CONTRAST);
        assert_eq!(poor, json!([]), "{scheme}");
    }
}

/// Pairs of colours whose contrast is below 4.5.
const CONTRAST: &str = "(() => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const number = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
        const part = (shift) => {
            const value = ((number >> shift) & 255) / 255;
            return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        };
        return 0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0);
    };
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const grounds = ['--ground', '--panel', '--raised'];
    const pairs = ['--text', '--muted', '--accent'].flatMap((ink) => grounds.map((ground) => [ink, ground]));
    for (const slice of ['read', 'optimize', 'generate', 'link', 'cache', 'blocked', 'other']) pairs.push(['--on-slice', '--is-' + slice]);
    pairs.push(['--on-unit', '--is-unit']);
    return pairs.filter(([ink, ground]) => contrast(light(ink), light(ground)) < 4.5).map((pair) => pair.join(' on '));
})()";

#[test]
fn a_running_engine_is_shown_while_it_runs() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    browser.open(dashboard.url());
    browser.wait("document.documentElement.dataset.status === 'live'");
    browser.value("symbol.value = 'missing'; ask.requestSubmit()");
    browser.wait("selection.innerText.includes('is not defined here')");
    drop(dashboard);
    browser.wait("document.documentElement.dataset.status === 'ended'");
}

#[test]
fn a_unit_shows_its_ir_and_its_code_and_why() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
    let text = "define i64 @answer(i64 %a) { %x = add i64 40, %a %y = add i64 %x, 2 ret i64 %y }";
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    jit.add_ir_text("answer.ll", text).expect("it is IR");
    jit.lookup("answer").expect("it compiles");
    browser.open(dashboard.url());
    browser.wait("document.documentElement.dataset.status === 'live'");
    tab(&mut browser, "units");
    browser.wait("[...units.querySelectorAll('.link')].some((link) => link.textContent === 'answer.ll')");
    browser.value(
        "[...units.querySelectorAll('.link')].find((link) => link.textContent === 'answer.ll').click()",
    );
    browser.wait("document.getElementById('unit-code') !== null");
    let shown = browser.text("document.getElementById('unit-code').textContent");
    for wanted in [
        "is ready at 0x",
        "O2, as it came",
        "add i64 40, %a",
        "O2, optimized",
        "add i64 %a, 42",
        "lea",
        "ret",
    ] {
        assert!(shown.contains(wanted), "{wanted} is missing: {shown}");
    }
    // A text that is open stays open while the page goes on.
    browser.value("document.querySelector('#unit-code details').open = true");
    browser.value("document.getElementById('selection').replaceChildren()");
    browser.wait("document.querySelector('#unit-code details')?.open");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn a_unit_of_a_recording_has_no_engine_to_ask() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let recording = Recording::of("no-engine", &chain());
    let dashboard = recording.dashboard();
    browser.open(dashboard.url());
    all_notes(&mut browser, 30);
    tab(&mut browser, "units");
    browser.value("units.querySelector('.link').click()");
    browser.wait("selection.textContent.includes('a recording has neither IR nor code')");
}

/// The figures are printed, not asserted: machines differ.
#[test]
fn a_million_notes_are_shown() {
    let Some(mut browser) = Browser::start("dark") else { return };
    let recording = Recording::of("million", &chain());
    let dashboard = recording.dashboard();
    browser.open(&format!("{}?synthetic=1000000", dashboard.url()));
    browser.wait("document.documentElement.dataset.status === 'synthetic'");
    let figures = browser.value("({ ...document.documentElement.dataset })");
    say(&format!("a million notes, in milliseconds: {figures}"));
    browser.wait("document.getElementById('figures').textContent === '1,000,000 notes'");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// The pictures of the documentation, of a page that is open: `URUK_PICTURES=docs URUK_PAGE=http://127.0.0.1:7070/ cargo test -p uruk --features
/// dashboard --test dashboard pictures`.
#[test]
fn pictures_are_made_when_they_are_wanted() {
    let wanted = ["URUK_PICTURES", "URUK_PAGE"].map(|name| std::env::var(name).ok());
    let [Some(directory), Some(page)] = wanted else { return };
    for (scheme, shown) in [("dark", "path"), ("light", "units")] {
        let mut browser = Browser::start(scheme).expect("there are no pictures without a browser");
        browser.open(&page);
        all_notes(&mut browser, 1);
        tab(&mut browser, shown);
        browser.picture(&Path::new(&directory).join(format!("dashboard-{scheme}.png")));
    }
}
