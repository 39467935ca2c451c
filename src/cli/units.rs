//! Sizes and times as people write and read them: `512M`, `30d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes. A kilobyte has 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// A time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

const SIZES: [(&str, u64); 5] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("", 1)];

const AGES: [(&str, u64); 5] =
    [("s", 1), ("m", 60), ("h", 60 * 60), ("d", 24 * 60 * 60), ("w", 7 * 24 * 60 * 60)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let letter = text.trim_end_matches("iB").trim_end_matches('B');
        parse(letter, &SIZES).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no size: give a number of bytes, or one followed by K, M, G or T, such as 512M"
            )
        })
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &AGES).map(|seconds| Self(Duration::from_secs(seconds))).ok_or_else(|| {
            format!("`{text}` is no time: give a number followed by s, m, h, d or w, such as 30d")
        })
    }
}

/// A number with one of the units behind it.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (unit, factor) = units.iter().find(|(unit, _)| {
        text.len() > unit.len()
            && text.get(text.len() - unit.len()..).is_some_and(|end| end.eq_ignore_ascii_case(unit))
    })?;
    text[..text.len() - unit.len()].parse::<u64>().ok()?.checked_mul(*factor)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        match SIZES[..4].iter().rfind(|(_, factor)| bytes >= *factor) {
            None => write!(f, "{bytes} B"),
            Some((unit, factor)) => write!(f, "{:.1} {unit}iB", bytes as f64 / *factor as f64),
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let words = ["second", "minute", "hour", "day"];
        let (word, (_, factor)) = words
            .iter()
            .zip(&AGES)
            .rfind(|(_, (_, factor))| seconds >= *factor)
            .unwrap_or((&words[0], &AGES[0]));
        let number = seconds / factor;
        write!(f, "{number} {word}{}", if number == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("2K", 2048), ("3m", 3 << 20), ("1GiB", 1 << 30), ("5TB", 5 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "1X", "99999999999T", "1é"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        let written = [0, 1023, 1024, 1536, 1 << 30].map(|bytes| Size(bytes).to_string());
        assert_eq!(written, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB"]);
    }

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds) in
            [("0s", 0), ("90s", 90), ("2m", 120), ("1h", 3600), ("30d", 30 * 86_400), ("1w", 7 * 86_400)]
        {
            assert_eq!(text.parse(), Ok(Age(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "30", "d", "1y"] {
            assert!(text.parse::<Age>().is_err(), "{text}");
        }
        let written = [0, 1, 119, 7200, 86_400].map(|seconds| Age(Duration::from_secs(seconds)).to_string());
        assert_eq!(written, ["0 seconds", "1 second", "1 minute", "2 hours", "1 day"]);
    }
}
