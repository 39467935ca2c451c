//! The library exports what LLVM's headers of ORC declare, and of LLVM's besides only the functions that it stands in front of.

mod support;

use std::collections::BTreeSet;
use std::fs;

use object::{Object, ObjectSymbol};

/// The functions that a header declares: names in front of a parenthesis, outside comments. Types of functions stand in one themselves.
fn declared(header: &str, start: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(support::llvm_config("--includedir").join("llvm-c").join(header))
        .expect("LLVM 22's headers");
    let code: String =
        text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let mut names = BTreeSet::new();
    for (start, _) in code.match_indices(start) {
        let rest = &code[start..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let arguments = rest[end..].trim_start().strip_prefix('(').map(str::trim_start);
        if arguments.is_some_and(|arguments| !arguments.starts_with('*')) && !code[..start].ends_with("(*") {
            names.insert(rest[..end].to_owned());
        }
    }
    names
}

/// Functions of other headers: with them, the passes of a module wait until it is added, or run before anything else sees it.
fn in_front() -> BTreeSet<String> {
    let mut names = declared("Transforms/PassBuilder.h", "LLVM");
    assert!(names.len() >= 17, "{names:?}");
    // Options of the command line are in no key, and modules that are linked have been through different passes.
    names.extend(["LLVMParseCommandLineOptions", "LLVMLinkModules2"].map(str::to_owned));
    let emitters = declared("TargetMachine.h", "LLVMTargetMachineEmit");
    assert_eq!(emitters.len(), 2, "{emitters:?}");
    names.extend(emitters);
    names
}

#[test]
fn every_declared_function_is_exported_and_no_other_of_llvm() {
    let headers = ["Orc.h", "OrcEE.h", "LLJIT.h", "LLJITUtils.h"];
    let declared = headers.into_iter().flat_map(|header| declared(header, "LLVMOrc")).chain(in_front());
    let declared: BTreeSet<_> = declared.collect();
    assert!(declared.len() >= 90, "{declared:?}");
    let bytes = fs::read(support::library()).expect("it is built with the tests");
    let library = object::File::parse(&*bytes).expect("an ELF library");
    let exported = library.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    let exported: BTreeSet<_> = exported.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect();
    let of_llvm: BTreeSet<_> = exported.iter().filter(|name| name.starts_with("LLVM")).cloned().collect();
    assert_eq!(of_llvm, declared);
    // Exceptions find their way through linked code by it, where the library is loaded with the program.
    assert!(exported.contains("_dl_find_object"), "{exported:?}");
}
