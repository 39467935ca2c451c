//! How many threads compile an image: half of the cores, unless memory is short. A build that runs out of memory is killed.

use std::fs;
use std::path::{Path, PathBuf};

use uruk::pipeline::ir::{Partition, PartitionPolicy};

use super::report;
use super::values::cores;

/// How many threads compile if the command line does not say.
const VARIABLE: &str = "URUK_IMAGE_THREADS";

/// Of everything but the parts: LLVM itself, the module that is divided, the linker.
const BASE_BYTES: u64 = 150 << 20;
/// Of a thread, besides its part.
const THREAD_BYTES: u64 = 20 << 20;
/// How much memory a part takes while it is compiled, in sizes of its bitcode.
const PART_FACTOR: u64 = 3;

/// The environment names no number of threads.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is `{text}`, and is to be a number of threads, from 1 to 1024")]
pub(crate) struct NoThreads {
    text: String,
}

/// Threads that there are not, as the cause of a warning.
#[derive(Debug, thiserror::Error)]
#[error("there is memory for {within}, and not for {asked}")]
struct TooLittleMemory {
    asked: usize,
    within: usize,
}

/// How many threads compile these files, which are divided so.
pub(crate) fn threads(
    jobs: Option<u16>,
    files: &[PathBuf],
    partition: Partition,
) -> Result<usize, NoThreads> {
    let of_environment = || match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => {
            let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
            threads.map(Some).ok_or(NoThreads { text })
        }
        _ => Ok(None),
    };
    let asked = match jobs {
        Some(jobs) => Some(usize::from(jobs)),
        None => of_environment()?,
    };
    let threads = asked.unwrap_or_else(|| half_of(cores()));
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|about| about.len());
    let parts = if partition.policy() == PartitionPolicy::Whole { 1 } else { partition.parts().max(1) };
    let part_bytes = sizes.max().unwrap_or(0) / parts as u64;
    let within = limit_bytes().map_or(threads, |limit| threads_within(limit, part_bytes));
    if let Some(asked) = asked.filter(|asked| *asked > within) {
        report::warning("there are fewer threads than asked for", &TooLittleMemory { asked, within });
    }
    Ok(threads.min(within))
}

/// How many threads there are by themselves.
fn half_of(cores: usize) -> usize {
    (cores / 2).max(1)
}

/// How many threads there is memory for, if the largest part has so many bytes of bitcode; at least one.
fn threads_within(limit_bytes: u64, part_bytes: u64) -> usize {
    let of_thread = part_bytes.saturating_mul(PART_FACTOR).saturating_add(THREAD_BYTES);
    usize::try_from(limit_bytes.saturating_sub(BASE_BYTES) / of_thread).unwrap_or(usize::MAX).max(1)
}

/// The memory that this process may have: by its control groups, and by what is available. `None` if the system tells neither.
fn limit_bytes() -> Option<u64> {
    limit_bytes_in(Path::new("/"))
}

/// The same of a system whose files are in a directory.
fn limit_bytes_in(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| of_group(root, line)).min();
    of_groups.into_iter().chain(available_bytes(root)).min()
}

/// The limit of a line of /proc/self/cgroup: the least of the group and of those that it is in.
fn of_group(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match (number, controllers) {
        ("0", "") => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    // Seen from inside a container its group may be the root, and the path one that is not there.
    let groups = group.ancestors().take_while(|group| group.starts_with(&mount));
    groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

fn available_bytes(root: &Path) -> Option<u64> {
    let memory = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a system, gone at the end.
    struct System(PathBuf);

    impl System {
        fn of(name: &str, files: &[(&str, &str)]) -> Self {
            let this = Self(std::env::temp_dir().join(format!("uruk-limit-{}-{name}", std::process::id())));
            for (path, text) in files {
                let path = this.0.join(path);
                fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
                fs::write(path, text).expect("there is room");
            }
            this
        }

        fn limit(&self) -> Option<u64> {
            limit_bytes_in(&self.0)
        }
    }

    impl Drop for System {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const AVAILABLE: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    4096 kB\n");

    #[test]
    fn the_least_of_all_limits_counts() {
        assert_eq!(System::of("none", &[("proc/self/cgroup", "0::/\n")]).limit(), None);
        assert_eq!(System::of("available", &[AVAILABLE]).limit(), Some(4 << 20));
        let second = |max: &str| {
            let files = [
                AVAILABLE,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/memory.max", max),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ];
            System::of("second", &files).limit()
        };
        assert_eq!(second("1048576\n"), Some(1 << 20), "of the group that it is in");
        assert_eq!(second("max\n"), Some(4 << 20));
        assert_eq!(second("1099511627776\n"), Some(4 << 20), "there is less");
        let first = [
            AVAILABLE,
            ("proc/self/cgroup", "5:cpu,memory:/docker/1\n4:pids:/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n"),
        ];
        assert_eq!(System::of("first", &first).limit(), Some(2 << 20), "of a container, seen from inside");
    }

    #[test]
    fn memory_bounds_threads_and_leaves_one() {
        let part = 2 << 20;
        assert_eq!(threads_within((150 << 20) + 4 * (26 << 20), part), 4);
        assert_eq!(threads_within((150 << 20) + 4 * (26 << 20) - 1, part), 3);
        assert_eq!((threads_within(0, part), threads_within(u64::MAX, 0) > 1024), (1, true));
        assert_eq!(threads_within(1 << 30, u64::MAX), 1);
        assert_eq!([1, 2, 3, 8].map(half_of), [1, 1, 1, 4]);
    }
}
