//! Harness of the whole-program tests: builds real programs in every form a user may have them in, runs each form
//! through `uruk run`, and compares it with the native executable.
//!
//! [`sources`] finds the libraries, [`program`] says what a program is, [`forms`] compiles it, and [`cache`] keeps what was compiled. [`inputs`] makes
//! small and broken files. [`process`] runs, [`matrix`] compares, and [`twins`] compares small programs. [`refusal`] says what an orderly error is,
//! [`terminal`] types and reads, and [`uruk`] is the command under test.
//!
//! **Never** does it link the engine: the `uruk` command is a file like any other toolchain's, so that a test sees
//! what a user sees, and a crash of the engine is a failed test rather than a dead test binary.

pub mod cache;
pub mod forms;
pub mod inputs;
pub mod matrix;
mod patience;
pub mod process;
pub mod program;
pub mod refusal;
pub mod sources;
pub mod terminal;
pub mod twins;
pub mod uruk;

/// Declares one test per program of a directory below `program-tests/programs`, and one that fails if a program there is not
/// listed.
#[macro_export]
macro_rules! programs {
    ($directory:ident: $($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(stringify!($directory), "/", stringify!($name));
                $crate::program::Program::load(name).expect("the program is there").check();
            }
        )+

        #[test]
        fn every_program_here_is_listed() {
            let mut listed = vec![$(concat!(stringify!($directory), "/", stringify!($name))),+];
            listed.sort_unstable();
            let present = $crate::program::names_in(stringify!($directory)).expect("the directory is there");
            assert_eq!(listed, present);
        }
    };
}
