//! Whose directories may hold a cache, and what cannot be written to.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use uruk_pipeline::cache::{Access, CacheOpenError, Miss, Pack, PackLimits, WriteError};

use super::child::{Process, skip, works};
use super::support::Scratch;
use super::{assert_stored, key, open, payload};

/// A user that is neither root nor this one.
const SOMEBODY: u32 = 65534;

/// A group without members in this test.
const TEAM: u32 = 60_010;

fn set_mode(path: &PathBuf, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn try_open(scratch: &Scratch, access: Access) -> Result<Pack, CacheOpenError> {
    Pack::open(&scratch.path("cache"), access, PackLimits::default())
}

#[test]
fn a_directory_is_made_for_its_user_alone() {
    let scratch = Scratch::new("directory-made");
    let pack = open(&scratch, Access::ReadWrite);
    pack.put(&key(0), &payload(0)).expect("there is room");
    assert_eq!(fs::metadata(pack.path()).expect("it is there").permissions().mode() & 0o7777, 0o700);
    for file in fs::read_dir(pack.path()).expect("it is there") {
        let mode = file.expect("it is there").metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new("directory-writable");
    drop(open(&scratch, Access::ReadWrite));
    for mode in [0o770, 0o702, 0o777, 0o1777, 0o2777, 0o2702, 0o4770] {
        set_mode(&scratch.path("cache"), mode);
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let error = try_open(&scratch, access).expect_err("others may write there");
            assert!(matches!(error, CacheOpenError::WritableByOthers { .. }), "{error}");
            let path = scratch.path("cache").display().to_string();
            let text = error.to_string();
            assert!(
                text.contains(&format!("chmod 700 {path}")) && text.contains(&format!("{mode:04o}")),
                "{text}"
            );
        }
    }
    set_mode(&scratch.path("cache"), 0o755);
    try_open(&scratch, Access::ReadWrite).expect("others may only read");
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let scratch = Scratch::new("directory-foreign");
    drop(open(&scratch, Access::ReadWrite));
    if chown(scratch.path("cache"), Some(SOMEBODY), None).is_err() {
        return skip("only root can give directories away");
    }
    let error = try_open(&scratch, Access::ReadOnly).expect_err("it belongs to somebody else");
    assert!(matches!(error, CacheOpenError::Foreign { owner: SOMEBODY, .. }), "{error}");
}

/// Has a user of a group of its own and of [`TEAM`] write and read.
fn member(user: &str, mask: &str, directory: &Path, number: u64) -> Option<String> {
    let role = "member";
    let team = TEAM.to_string();
    let shell = ["sh", "-c", "umask \"$0\"; exec \"$@\"", mask];
    let wrapper = [&["setpriv", "--reuid", user, "--regid", user, "--groups", &team], &shell[..]].concat();
    Process::start(&wrapper, role, directory, number).hear()
}

#[test]
fn a_group_shares_a_directory_that_it_may_write_to_and_gives_its_files_to_it() {
    let scratch = Scratch::new("directory-shared");
    let directory = scratch.path("cache");
    drop(open(&scratch, Access::ReadWrite));
    let binary = std::env::current_exe().expect("the running test");
    let binary = binary.to_str().expect("a plain path");
    let may_run = works(&["setpriv", "--reuid", "60001", "--clear-groups", binary, "--list"]);
    if !may_run || chown(&directory, None, Some(TEAM)).is_err() {
        return skip("only root can become somebody else, and that one has to be able to run this test");
    }
    set_mode(&directory, 0o2770);
    assert_eq!(member("60001", "022", &directory, 1).as_deref(), Some("1 of 1"));
    assert_eq!(member("60002", "077", &directory, 2).as_deref(), Some("2 of 2"));
    // Also where a member owns it, and for who is root.
    chown(&directory, Some(60_001), None).expect("we are root");
    assert_eq!(member("60002", "077", &directory, 3).as_deref(), Some("3 of 3"));
    (1..=3).for_each(|number| assert_stored(&open(&scratch, Access::ReadOnly), number));
    for file in fs::read_dir(&directory).expect("it is there") {
        let file = file.expect("it is there").metadata().expect("it is there");
        assert_eq!((file.gid(), file.permissions().mode() & 0o7777), (TEAM, 0o660));
    }
    // A directory that a member makes among those of the group.
    let team = scratch.path("team");
    fs::create_dir(&team).expect("a directory of ours");
    chown(&team, None, Some(TEAM)).expect("we are root");
    set_mode(&team, 0o2770);
    for (user, number) in [("60001", 1), ("60002", 2)] {
        let said = member(user, "002", &team.join("cache"), number);
        assert_eq!(said, Some(format!("{number} of {number}")));
    }
    // A file that is not a member's, or that others may write, is not read.
    for (owner, group, mode) in [(SOMEBODY, SOMEBODY, 0o660), (60_001, TEAM, 0o662), (0, SOMEBODY, 0o660)] {
        for file in fs::read_dir(&directory).expect("it is there") {
            let path = file.expect("it is there").path();
            chown(&path, Some(owner), Some(group)).expect("we are root");
            set_mode(&path, mode);
        }
        assert_eq!(open(&scratch, Access::ReadOnly).get(&key(1)).map(drop), Err(Miss::NotStored));
    }
}

#[test]
fn a_shared_directory_is_refused_if_its_name_was_free_to_take() {
    let scratch = Scratch::new("directory-free-name");
    drop(open(&scratch, Access::ReadWrite));
    if chown(scratch.path("cache"), Some(SOMEBODY), Some(SOMEBODY)).is_err() {
        return skip("only root can give directories away");
    }
    set_mode(&scratch.path("cache"), 0o2770);
    drop(open(&scratch, Access::ReadOnly));
    set_mode(&scratch.path("."), 0o1777);
    let error = try_open(&scratch, Access::ReadOnly).expect_err("anybody could have made it");
    assert!(matches!(error, CacheOpenError::Foreign { owner: SOMEBODY, .. }), "{error}");
}

#[test]
fn files_of_others_are_no_generations() {
    let scratch = Scratch::new("directory-files");
    let pack = open(&scratch, Access::ReadWrite);
    pack.put(&key(0), &payload(0)).expect("there is room");
    for file in fs::read_dir(pack.path()).expect("it is there") {
        let path = file.expect("it is there").path();
        let is_writable = |mode| {
            set_mode(&path, mode);
            open(&scratch, Access::ReadOnly).get(&key(0)).map(drop)
        };
        let of_a_generation = path.extension().is_none_or(|ending| ending != "lock");
        let expected = if of_a_generation { Err(Miss::NotStored) } else { Ok(()) };
        assert_eq!(is_writable(0o666), expected);
        assert_eq!(is_writable(0o600), Ok(()));
        // Nor is a link followed to what lies elsewhere.
        let elsewhere = scratch.path("elsewhere");
        fs::rename(&path, &elsewhere).expect("it is ours");
        symlink(&elsewhere, &path).expect("it is ours");
        assert_eq!(open(&scratch, Access::ReadOnly).get(&key(0)).map(drop), expected);
        fs::rename(&elsewhere, &path).expect("it is ours");
    }
}

#[test]
fn what_is_only_read_stays_as_it_is() {
    let scratch = Scratch::new("directory-read-only");
    try_open(&scratch, Access::ReadOnly).expect_err("who only reads makes no directory");
    let writer = open(&scratch, Access::ReadWrite);
    writer.put(&key(0), &payload(0)).expect("there is room");
    let files = || fs::read_dir(writer.path()).expect("it is there").count();
    let before = files();
    set_mode(&scratch.path("cache"), 0o500);
    let pack = open(&scratch, Access::ReadOnly);
    assert_stored(&pack, 0);
    assert_eq!(pack.put(&key(1), &payload(1)), Err(WriteError::ReadOnly));
    assert_eq!(pack.gc(), Err(WriteError::ReadOnly));
    assert_eq!(pack.clear(), Err(WriteError::ReadOnly));
    assert!(pack.verify().bad.is_empty());
    assert_eq!(files(), before);
    set_mode(&scratch.path("cache"), 0o700);
}

#[test]
fn a_directory_that_refuses_writes_is_read() {
    let scratch = Scratch::new("directory-refuses");
    let pack = open(&scratch, Access::ReadWrite);
    pack.put(&key(0), &payload(0)).expect("there is room");
    let somebody = SOMEBODY.to_string();
    let wrapper = ["setpriv", "--reuid", &somebody, "--clear-groups"];
    let binary = std::env::current_exe().expect("the running test");
    let binary = binary.to_str().expect("a plain path");
    if !works(&[&wrapper[..], &[binary, "--list"]].concat()) {
        return skip("only root can become somebody else, and that one has to be able to run this test");
    }
    // All users may trust a file of root's that only root may write.
    set_mode(&scratch.path("cache"), 0o755);
    for file in fs::read_dir(pack.path()).expect("it is there") {
        set_mode(&file.expect("it is there").path(), 0o644);
    }
    let mut reader = Process::start(&wrapper, "refused", pack.path(), 0);
    let said = reader.hear();
    assert!(said.as_ref().is_some_and(|said| said.contains("Permission denied")), "{said:?}");
}

#[test]
fn a_path_that_is_no_directory_is_named() {
    let scratch = Scratch::new("directory-none");
    let path = scratch.write("cache", "a file");
    let error = try_open(&scratch, Access::ReadWrite).expect_err("it is a file");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}
