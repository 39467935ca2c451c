//! `uruk cache`: what is in a cache, whether it is as it was written, and making room.

use std::ffi::c_int;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use uruk::pipeline::cache::{
    Access, CacheOpenError, Collected, Pack, PackLimits, PackStats, Verified, WriteError,
};

use super::examples::CACHE_EXAMPLES;
use super::units::{Age, Size};

/// `uruk cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// The verb.
    #[command(subcommand)]
    pub(crate) command: CacheCommand,

    /// The directory of the cache [default: what URUK_CACHE says in the environment].
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) cache: Option<PathBuf>,
}

/// The verbs of `uruk cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Say how many entries there are, how large and how old.
    #[command(after_help = CACHE_EXAMPLES)]
    Stats(DirectoryArg),
    /// Read every entry and check that it is as it was written. Exit code 1 if one is not.
    #[command(after_help = CACHE_EXAMPLES)]
    Verify(DirectoryArg),
    /// Remove what is too old or takes too much room, and what killed processes have left.
    ///
    /// Entries go many at a time, the oldest first: those of the files that were begun together.
    #[command(after_help = CACHE_EXAMPLES)]
    Gc {
        /// How much the files may take together: a number of bytes, or with K, M, G or T.
        #[arg(long, value_name = "SIZE", default_value = "1G")]
        max_size: Size,
        /// How old entries may become: a number with s, m, h, d or w.
        #[arg(long, value_name = "TIME", default_value = "30d")]
        max_age: Age,
        #[command(flatten)]
        directory: DirectoryArg,
    },
    /// Remove all entries.
    #[command(after_help = CACHE_EXAMPLES)]
    Clear(DirectoryArg),
}

/// The cache's directory, behind the verb.
#[derive(Debug, Args)]
pub(crate) struct DirectoryArg {
    /// The directory of the cache, as with --cache.
    #[arg(value_name = "DIR", conflicts_with = "cache")]
    pub(crate) directory: Option<PathBuf>,
}

/// Exit code where something is wrong with what is stored.
const DAMAGED: c_int = 1;

/// Where the cache lies if the command line does not say.
const VARIABLE: &str = "URUK_CACHE";

/// Why there is nothing to say about a cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error(
        "which cache? Name its directory: uruk cache stats DIR, --cache DIR, or {VARIABLE}=DIR in the environment"
    )]
    Unnamed,
    #[error("there is no cache in {}: nothing of that name is there; `uruk run --cache DIR FILE` makes one", path.display())]
    Missing { path: PathBuf },
    #[error(transparent)]
    Open(#[from] CacheOpenError),
    #[error("nothing was removed from the cache in {}; try again when no other process writes to it", path.display())]
    Busy { path: PathBuf, source: WriteError },
    #[error("cannot make room in the cache in {}", path.display())]
    Remove { path: PathBuf, source: WriteError },
}

/// The directory that is meant, if any is.
pub(crate) fn directory(named: Option<&Path>) -> Option<PathBuf> {
    let of_environment = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    named.map(Path::to_owned).or_else(of_environment)
}

/// Does what is asked; the exit code.
pub(crate) fn cache(args: &CacheArgs) -> Result<c_int, CacheError> {
    let (CacheCommand::Stats(behind)
    | CacheCommand::Verify(behind)
    | CacheCommand::Clear(behind)
    | CacheCommand::Gc { directory: behind, .. }) = &args.command;
    let named = behind.directory.as_deref().or(args.cache.as_deref());
    let path = directory(named).ok_or(CacheError::Unnamed)?;
    let open = |access, limits| {
        if !path.exists() {
            return Err(CacheError::Missing { path: path.clone() });
        }
        Ok(Pack::open(&path, access, limits)?)
    };
    let failed = |source| match source {
        WriteError::Busy => CacheError::Busy { path: path.clone(), source },
        source => CacheError::Remove { path: path.clone(), source },
    };
    let mut code = 0;
    let mut report = String::new();
    match args.command {
        CacheCommand::Stats(_) => {
            let pack = open(Access::ReadOnly, PackLimits::default())?;
            report += &stats(&path, &pack.stats(), SystemTime::now()).to_string();
        }
        CacheCommand::Verify(_) => {
            let verified = open(Access::ReadOnly, PackLimits::default())?.verify();
            report += &verify(&path, &verified).to_string();
            if !verified.bad.is_empty() || !verified.unusable.is_empty() {
                code = DAMAGED;
            }
        }
        CacheCommand::Gc { max_size, max_age, .. } => {
            let limits = PackLimits { size_bytes: max_size.0, age: max_age.0 };
            let pack = open(Access::ReadWrite, limits)?;
            let collected = pack.gc().map_err(failed)?;
            report += &removed(&path, &collected, &pack.stats()).to_string();
        }
        CacheCommand::Clear(_) => {
            let pack = open(Access::ReadWrite, PackLimits::default())?;
            let collected = pack.clear().map_err(failed)?;
            report += &removed(&path, &collected, &pack.stats()).to_string();
        }
    }
    // Nothing is left to say without a reader.
    let _ = io::stdout().write_all(report.as_bytes());
    Ok(code)
}

/// A line on the whole, and a table of its generations.
fn stats<'a>(path: &'a Path, stats: &'a PackStats, now: SystemTime) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        writeln!(f, "{}: {}", path.display(), Contents(stats))?;
        if stats.generations.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:>12} {:>10} {:>10} {:>10}  begun", "generation", "entries", "of size", "files")?;
        for generation in &stats.generations {
            let age = now.duration_since(generation.created).unwrap_or_default();
            let state = if generation.is_sealed { ", full" } else { "" };
            writeln!(
                f,
                "{:>12} {:>10} {:>10} {:>10}  {} ago{state}",
                generation.number,
                generation.entries,
                Size(generation.entry_bytes).to_string(),
                Size(generation.file_bytes).to_string(),
                Age(age),
            )?;
        }
        writeln!(f, "How many lookups hit is counted by each run: uruk run --cache DIR --stats FILE")
    })
}

/// How many entries there are, and how many bytes of files.
struct Contents<'a>(&'a PackStats);

impl fmt::Display for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generations = &self.0.generations;
        let entries: u64 = generations.iter().map(|generation| generation.entries).sum();
        let bytes: u64 = generations.iter().map(|generation| generation.file_bytes).sum();
        write!(f, "{}, {} on disk", count(entries, "entry", "entries"), Size(bytes))
    }
}

/// A line on the whole, and one on each thing that is wrong.
fn verify<'a>(path: &'a Path, verified: &'a Verified) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        let (good, bytes) = (count(verified.entries, "entry", "entries"), Size(verified.entry_bytes));
        write!(f, "{}: {good} as written, {bytes}", path.display())?;
        // A header and the room between entries are some bytes each.
        if verified.orphan_bytes > 64 * (verified.entries + 2) {
            write!(
                f,
                "; {} of the files belong to no entry, which is no damage",
                Size(verified.orphan_bytes)
            )?;
        }
        f.write_char('\n')?;
        for bad in &verified.bad {
            writeln!(
                f,
                "damaged: entry at byte {} of generation {}: {}",
                bad.offset, bad.generation, bad.why
            )?;
        }
        for number in &verified.unusable {
            writeln!(
                f,
                "damaged: generation {number} cannot be used: a file of it is missing, foreign or damaged"
            )?;
        }
        match verified.bad.len() + verified.unusable.len() {
            0 => Ok(()),
            _ => writeln!(
                f,
                "Nothing of this is ever used. What is needed of it is compiled and stored again; `uruk cache clear` removes all."
            ),
        }
    })
}

/// How much went and how much is left.
fn removed<'a>(path: &'a Path, collected: &'a Collected, left: &'a PackStats) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        let went = count(collected.generations.len() as u64, "generation", "generations");
        writeln!(f, "{}: removed {went}, {}; left {}", path.display(), Size(collected.bytes), Contents(left))
    })
}

fn count(number: u64, one: &'static str, several: &'static str) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{number} {}", if number == 1 { one } else { several }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_one_a_line() {
        let mut verified = Verified::default();
        verified.entries = 1;
        verified.entry_bytes = 1536;
        verified.unusable = vec![7];
        let text = verify(Path::new("c"), &verified).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "c: 1 entry as written, 1.5 KiB");
        assert!(lines[1].starts_with("damaged: generation 7 cannot be used"), "{text}");
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(
            verify(Path::new("c"), &Verified::default()).to_string(),
            "c: 0 entries as written, 0 B\n"
        );
    }

    #[test]
    fn an_empty_cache_has_no_table() {
        let nothing = stats(Path::new("c"), &PackStats::default(), SystemTime::UNIX_EPOCH).to_string();
        assert_eq!(nothing, "c: 0 entries, 0 B on disk\n");
    }
}
