//! Messages of commits: a short subject, and a body that says why.

use std::process::Command;

use crate::demand_none;
use crate::source::workspace;

/// Commits up to this one had another form.
const LAST_OF_THE_OLD_FORM: &str = "defb8c2468f0a1f59b1057e63c2ebb83d262b1ba";

/// The longest subject.
const SUBJECT_CHARACTERS_MAX: usize = 72;

/// A reader of the history sees what a commit does, and why.
#[test]
fn commits_say_what_they_do_and_why() {
    let Some(messages) = messages() else { return };
    let findings = messages.split('\0').map(str::trim).filter_map(|message| {
        let (subject, body) = message.split_once('\n').unwrap_or((message, ""));
        let length = subject.chars().count();
        if length > SUBJECT_CHARACTERS_MAX {
            Some(format!("{subject}: {length} characters, at most {SUBJECT_CHARACTERS_MAX}"))
        } else if !subject.is_empty() && body.trim().is_empty() {
            Some(format!("{subject}: no body says why"))
        } else {
            None
        }
    });
    demand_none(findings, "amend the message: one imperative line, an empty line, then why");
}

/// The messages of the commits since. None where there is no history: in an archive of the sources, or a shallow clone.
fn messages() -> Option<String> {
    let range = format!("{LAST_OF_THE_OLD_FORM}..HEAD");
    let mut git = Command::new("git");
    git.current_dir(workspace()).args(["log", "--no-merges", "-z", "--format=%B", &range]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}
