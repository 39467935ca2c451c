//! Programs in C that use the interface as embedders do, each linked with the library, with the library preloaded, and in a library
//! that is loaded late. Each says in its head what it prints; a line may go on.

mod support;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use uruk::pipeline::cache::{Access, DiskCache, PackLimits};

/// How a program comes to its functions.
#[derive(Clone, Copy, Debug)]
enum Way {
    Linked,
    Preloaded,
    LoadedLate,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A directory of this test's own.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// A directory that no other user may write to, with nothing in it.
fn cache_directory(name: &str) -> PathBuf {
    let cache = directory(name);
    fs::remove_dir_all(&cache).expect("a directory");
    fs::DirBuilder::new().mode(0o700).create(&cache).expect("a directory of our own");
    cache
}

fn output_of(command: &mut Command) -> (String, bool) {
    // Cargo names a directory there in which another build of the library may lie.
    let output =
        command.env_remove("LD_LIBRARY_PATH").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (text, output.status.success())
}

/// A compiler, told where the headers and the libraries are.
fn compiler(file: &str) -> Command {
    let mut command = Command::new(if file.ends_with(".cpp") { "clang++-22" } else { "clang-22" });
    let library = support::library();
    let ours = library.parent().expect("in a directory").display();
    let llvm = support::llvm_config("--libdir");
    command.arg("-g1").arg("-isystem").arg(support::llvm_config("--includedir"));
    command.arg(format!("-L{ours}")).arg(format!("-L{}", llvm.display()));
    command.arg(format!("-Wl,-rpath,{ours}:{}", llvm.display()));
    command
}

fn build(command: &mut Command) {
    let (text, is_built) = output_of(command);
    assert!(is_built, "{command:?}: {text}");
}

/// The program, linked for `way`.
fn build_for(file: &str, way: Way) -> PathBuf {
    let (source, main) = (sources().join(file), sources().join("main.c"));
    let directory = directory(&format!("{file}-{way:?}"));
    let (host, part) = (directory.join("host"), directory.join("main.o"));
    build(compiler("main.c").arg("-c").arg("-DLINKED").arg(main).arg("-o").arg(&part));
    let mut link = compiler(file);
    link.arg(source).arg(&part).arg("-o").arg(&host);
    if matches!(way, Way::Linked) {
        link.arg("-luruk_orc");
    }
    build(link.arg("-lLLVM-22"));
    host
}

fn run(file: &str, way: Way) -> (String, bool) {
    run_with(file, way, &[])
}

/// Runs a program in an environment.
fn run_with(file: &str, way: Way, environment: &[(&str, &str)]) -> (String, bool) {
    let run = |command: &mut Command| output_of(command.envs(environment.iter().copied()));
    match way {
        Way::Linked => run(&mut Command::new(build_for(file, way))),
        Way::Preloaded => run(Command::new(build_for(file, way)).env("LD_PRELOAD", support::library())),
        Way::LoadedLate => {
            let (source, main) = (sources().join(file), sources().join("main.c"));
            let directory = directory(&format!("{file}-{way:?}"));
            let (host, library) = (directory.join("host"), directory.join("part.so"));
            build(compiler("main.c").arg(main).arg("-o").arg(&host));
            build(
                compiler(file)
                    .args(["-shared", "-fPIC"])
                    .arg(source)
                    .arg("-o")
                    .arg(&library)
                    .args(["-luruk_orc", "-lLLVM-22"]),
            );
            run(Command::new(host).arg(library))
        }
    }
}

fn expect(file: &str) {
    let source = fs::read_to_string(sources().join(file)).expect("the program");
    let expected: Vec<_> = source.lines().filter_map(|line| line.strip_prefix("// prints: ")).collect();
    assert!(!expected.is_empty());
    for way in [Way::Linked, Way::Preloaded, Way::LoadedLate] {
        let (text, succeeded) = run(file, way);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("JIT session error: ")).collect();
        let fits = lines.len() == expected.len()
            && lines.iter().zip(&expected).all(|(line, start)| line.starts_with(start));
        assert!(succeeded && fits, "{file}, {way:?}:\n{text}");
    }
}

/// How many entries a cache has.
fn entries_of(directory: &Path) -> u64 {
    let cache = DiskCache::open(directory, Access::ReadOnly, PackLimits::default()).expect("a cache");
    cache.pack().stats().generations.iter().map(|generation| generation.entries).sum()
}

/// A second process finds the code of the first, though its structures lie elsewhere and its functions have other names.
#[test]
fn a_second_process_compiles_nothing_that_differs_in_addresses_and_names() {
    let cache = cache_directory("cache");
    let host = build_for("cached.c", Way::Linked);
    let entries = || entries_of(&cache);
    let run = |value: &str| output_of(Command::new(&host).arg(value).env("URUK_ORC_CACHE", &cache));
    assert_eq!(run("7"), ("7\n".to_owned(), true));
    let first = entries();
    assert!(first > 0);
    assert_eq!(run("9"), ("9\n".to_owned(), true));
    assert_eq!(entries(), first);
}

#[test]
fn the_lljits_of_a_process_share_a_cache() {
    let cache = cache_directory("shared");
    let environment = [("URUK_ORC_CACHE", &*cache.to_string_lossy())];
    assert_eq!(run_with("shared.c", Way::Linked, &environment), (expected("shared.c"), true));
}

/// A program for several tests, built once: a file that runs cannot be written. Its modules are PostgreSQL's.
fn live_host() -> &'static Path {
    static HOST: OnceLock<PathBuf> = OnceLock::new();
    HOST.get_or_init(|| build_for("live.c", Way::Linked))
}

/// PostgreSQL's way: modules that are optimized in place, in a context that the client keeps, with addresses of its heap in them.
#[test]
fn optimized_modules_of_another_process_are_found_by_their_shape() {
    const MODULES: usize = 24;
    let (cache, host) = (cache_directory("live-cache"), live_host());
    let answers = output_of(&mut Command::new(host)).0;
    for number in 0..4 {
        let mut command = Command::new(host);
        command.env("LIVE_NUMBER", number.to_string());
        let (text, succeeded) = output_of(command.env("URUK_ORC_CACHE", &cache).env("URUK_ORC_REPORT", "1"));
        let (reports, lines): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("uruk: "));
        assert!(succeeded && lines == answers.lines().collect::<Vec<_>>(), "{text}");
        let count = |report: &str| reports.iter().filter(|line| **line == report).count();
        let counts = [count("uruk: test: object"), count("uruk: test: no object: not stored")];
        assert_eq!(counts, if number == 0 { [0, MODULES] } else { [MODULES, 0] }, "{text}");
        assert!(!text.contains("no shape"), "{text}");
    }
}

#[test]
fn a_module_without_a_shape_is_reported_with_the_reason() {
    let (cache, host) = (cache_directory("shapeless-cache"), build_for("shapeless.c", Way::Linked));
    let mut command = Command::new(host);
    let (text, succeeded) = output_of(command.env("URUK_ORC_CACHE", cache).env("URUK_ORC_REPORT", "1"));
    let report = "uruk: test: no interface: it has no shape: a section or partition, in `placed`";
    assert!(succeeded && text.starts_with("8\n") && text.lines().any(|line| line == report), "{text}");
}

#[test]
fn a_cache_that_cannot_be_used_is_refused_aloud_and_once_and_the_program_runs() {
    let (cache, host) = (cache_directory("open-to-all"), live_host());
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let file = cache.join("file");
    fs::write(&file, "").expect("it is ours");
    for (directory, why) in
        [(&*cache, "others may write to the cache directory"), (&*file, "the cache directory")]
    {
        let (text, succeeded) = output_of(Command::new(host).env("URUK_ORC_CACHE", directory));
        let start = format!("JIT session error: URUK_ORC_CACHE is not in use, all code is compiled: {why}");
        let told: Vec<_> = text.lines().filter(|line| line.contains("error")).collect();
        assert!(succeeded && told.len() == 1 && told[0].starts_with(&start), "{text}");
    }
}

/// A limit on the size of files stands for a full disk: the system refuses to write on.
#[test]
fn a_cache_that_cannot_be_written_is_reported_once_and_the_program_runs() {
    let (cache, host) = (cache_directory("full-cache"), live_host());
    let (text, succeeded) = output_of(Command::new(host).env("LIVE_FULL", "1").env("URUK_ORC_CACHE", cache));
    let start =
        "JIT session error: URUK_ORC_CACHE cannot be written, new code is not kept: the system refused";
    let told: Vec<_> = text.lines().filter(|line| line.contains("error")).collect();
    assert!(succeeded && told.len() == 1 && told[0].starts_with(start), "{text}");
}

/// How a program says that it wants passes to be put off.
const DEFER: (&str, &str) = ("URUK_ORC_DEFER", "1");

/// The lines that a program says it prints, as one text.
fn expected(file: &str) -> String {
    let source = fs::read_to_string(sources().join(file)).expect("the program");
    source.lines().filter_map(|line| Some(format!("{}\n", line.strip_prefix("// prints: ")?))).collect()
}

#[test]
fn passes_that_are_put_off_run_before_anything_sees_the_module_without() {
    let expected = expected("put_off.c");
    let cache = cache_directory("put-off");
    let is_on = [DEFER, ("URUK_ORC_CACHE", &*cache.to_string_lossy())];
    // The second and the third find all in the cache.
    for way in [Way::Linked, Way::Preloaded, Way::LoadedLate] {
        assert_eq!(run_with("put_off.c", way, &is_on), (expected.clone(), true), "{way:?}");
    }
    let at_once = expected.replace("put off", "run");
    for is_off in [&is_on[..1], &is_on[1..]] {
        assert_eq!(run_with("put_off.c", Way::Linked, is_off), (at_once.clone(), true), "{is_off:?}");
    }
}

/// They are not run where nothing is compiled: a miss would put an object.
#[test]
fn passes_that_are_put_off_and_their_threshold_are_part_of_the_key() {
    let cache = cache_directory("deferred-cache");
    let host = build_for("cached.c", Way::Linked);
    let mut seen = Vec::new();
    for (passes, threshold) in
        [("default<O2>", "512"), ("default<O2>", "512"), ("default<O2>", "100"), ("default<O3>", "512")]
    {
        let number = seen.len().to_string();
        let mut command = Command::new(&host);
        command.arg(&number).env("URUK_ORC_CACHE", &cache).env(DEFER.0, DEFER.1);
        let found = output_of(command.env("PASSES", passes).env("THRESHOLD", threshold));
        assert_eq!(found, (format!("{number}\n"), true));
        seen.push(entries_of(&cache));
    }
    assert!(seen[0] == seen[1] && seen[1] < seen[2] && seen[2] < seen[3], "{seen:?}");
}

#[test]
fn a_transform_that_comes_too_late_for_a_cached_module_says_so() {
    let host = build_for("late.c", Way::Linked);
    let (text, succeeded) =
        output_of(Command::new(host).env("URUK_ORC_CACHE", cache_directory("late-cache")));
    let expected = "1\ntransform\n2\nJIT session error: LLVMOrcIRTransformLayerSetTransform: \
        the modules that were added before go to the cache, without the transform\n";
    assert_eq!((text.as_str(), succeeded), (expected, true));
}

/// The table of what ORC does beside what we do. Rows that ORC does not survive are left out there.
#[test]
fn rows_of_the_table_are_as_in_orc_and_here() {
    expect("rows.c");
    let ours = expected("rows.c");
    // As if to be preloaded, and then not.
    let mut alone = Command::new(build_for("rows.c", Way::Preloaded));
    let (orcs, succeeded) = output_of(alone.env("ROWS_LIBLLVM", "1"));
    let common = ours.split("a module for a removed tracker").next();
    assert_eq!((Some(&*orcs), succeeded), (common, true));
}

#[test]
fn a_server_runs_its_queries() {
    expect("server.c");
}

#[test]
fn units_are_split_resolved_one_by_one_refused_and_failed() {
    expect("units.c");
}

#[test]
fn modules_and_objects_pass_the_clients_layers() {
    expect("layers.c");
}

#[test]
fn linked_code_lies_in_the_memory_that_the_client_hands_out() {
    expect("memory.c");
}

#[test]
fn a_callback_may_be_left_by_a_jump() {
    expect("jumps.c");
}

#[test]
fn a_jump_is_found_out_below_a_buffer_that_nothing_has_written_to() {
    expect("hole.c");
}

#[test]
fn a_lookup_after_an_inner_jump_has_its_own_answer() {
    expect("inner_jump.c");
}

#[test]
fn units_of_one_thread_may_look_each_other_up() {
    expect("nested.c");
}

#[test]
fn units_of_one_thread_may_need_each_other() {
    expect("depends.c");
}

#[test]
fn a_responsibility_may_be_read_by_several_threads() {
    expect("readers.c");
}

#[test]
fn bad_handles_are_errors() {
    expect("handles.c");
}

#[test]
fn exceptions_pass() {
    expect("throws.cpp");
}
