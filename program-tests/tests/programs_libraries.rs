//! Real programs from real libraries, several modules each, in every form.
//!
//! The large ones are two tests each, so that two cores are busy to the end.

use std::time::Duration;

use uruk_tests::forms::Form;
use uruk_tests::process::End;
use uruk_tests::program::{Program, programs_directory};
use uruk_tests::sources::ProgramSource::{
    self, Lua, Lz4, Mimalloc, Sqlite, TreeSitter, TreeSitterJson, Zlib, Zstd,
};

const LIMIT: Duration = Duration::from_secs(400);

fn program(name: &str, libraries: &[ProgramSource]) -> Program {
    let program = Program::load(name).expect("the program is there").within(LIMIT);
    libraries
        .iter()
        .fold(program, |program, &library| program.with_library(library).expect("the library is there"))
}

fn is_bitcode(form: Form) -> bool {
    matches!(form, Form::BitcodeO0 | Form::BitcodeO2 | Form::Text)
}

/// SQLite's objects are compiled at O1: O2 costs half as much again and shows nothing more.
fn sqlite() -> Program {
    program("sqlite", &[Sqlite]).at_level(1)
}

#[test]
fn sqlite_from_bitcode() {
    sqlite().check_forms(is_bitcode);
}

#[test]
fn sqlite_from_objects() {
    sqlite().check_forms(|form| !is_bitcode(form));
}

#[test]
fn sqlite_with_sql_from_arguments_and_input() {
    let form = |form| form == Form::BitcodeO0;
    let select = "SELECT 6 * 7 AS answer; SELECT 'Uruk' AS city, NULL AS missing;";
    sqlite().with_arg(select).with_arg("SELECT sqlite_version() > '3.0' AS recent").check_forms(form);
    let mut piped = sqlite().with_arg("-");
    piped.input.stdin =
        b"CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);\nSELECT sum(a) FROM t; SELECT no;".into();
    piped.end = End::Exited(1);
    piped.check_forms(form);
}

fn lua() -> Program {
    let script = programs_directory().join("lua/script.lua");
    let mut lua = program("lua", &[Lua]);
    lua = lua.with_arg(script.display().to_string()).with_arg("one").with_arg("two words");
    // The script ends with an error of its own.
    lua.end = End::Exited(1);
    lua
}

#[test]
fn lua_from_bitcode() {
    lua().check_forms(is_bitcode);
}

#[test]
fn lua_from_objects() {
    lua().check_forms(|form| !is_bitcode(form));
}

#[test]
fn zstd_from_bitcode() {
    program("zstd", &[Zstd]).check_forms(is_bitcode);
}

#[test]
fn zstd_from_objects() {
    program("zstd", &[Zstd]).check_forms(|form| !is_bitcode(form));
}

#[test]
fn zlib() {
    program("zlib", &[Zlib]).check();
}

#[test]
fn lz4() {
    program("lz4", &[Lz4]).check();
}

#[test]
fn mimalloc() {
    program("mimalloc", &[Mimalloc]).check();
}

#[test]
fn tree_sitter() {
    program("tree-sitter", &[TreeSitter, TreeSitterJson]).check();
}
