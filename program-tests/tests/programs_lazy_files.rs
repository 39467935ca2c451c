//! Programs of which whole files are compiled or linked when one of their functions is first called.

use uruk_tests::program::Program;

/// Of all that linkers do for a program, what a stub could be in the way of.
const PROGRAMS: [&str; 16] = [
    "c/aliases",
    "c/callbacks",
    "c/calling_convention",
    "c/common_symbols",
    "c/constructors",
    "c/dispatch_tables",
    "c/function_identity",
    "c/ifuncs",
    "c/section_bounds",
    "c/symbol_versions",
    "c/thread_locals",
    "c/visibility",
    "c/weak_override",
    "cxx/comdat",
    "cxx/exceptions",
    "cxx/rtti",
];

#[test]
fn files_come_when_they_are_called_and_programs_behave_as_natively() {
    for name in PROGRAMS {
        Program::load(name).expect("the program is there").check_lazy_files();
    }
}
