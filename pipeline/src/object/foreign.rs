//! [`foreign_format`]: names of file formats that other programs know.

/// How to get an object for this machine of a source.
const COMPILE: &str = "compile it for this system, such as with --target=x86_64-linux-gnu";

/// First bytes of objects and archives of other systems, with their names.
const OBJECTS: [(&[u8], &str); 17] = [
    (b"\xFE\xED\xFA\xCE", MACH_O),
    (b"\xFE\xED\xFA\xCF", MACH_O),
    (b"\xCE\xFA\xED\xFE", MACH_O),
    (b"\xCF\xFA\xED\xFE", MACH_O),
    (b"\0asm", "a WebAssembly module"),
    (b"MZ\x90\0", "a program or library of Windows or DOS (PE)"),
    (b"\x64\x86", COFF),
    (b"\x64\xAA", COFF),
    (b"\x41\xA6", COFF),
    (b"\xC4\x01", COFF),
    (b"\x4C\x01", COFF),
    // With many sections, or of an import library.
    (b"\0\0\xFF\xFF", COFF),
    (b"\x01\xDF", XCOFF),
    (b"\x01\xF7", XCOFF),
    (b"\x03\xF0\0", "an object for z/OS (GOFF)"),
    (b"<bigaf>\n", "an archive for AIX"),
    (b"DXBC", "a DirectX container"),
];
const MACH_O: &str = "an object, program or library of Apple's systems (Mach-O)";
const COFF: &str = "an object for Windows (COFF)";
const XCOFF: &str = "an object for AIX (XCOFF)";

const UNPACK: &str = "unpack it first";

/// First bytes of other files that are taken for programs, with their names and advice.
const OTHERS: [(&[u8], &str, &str); 18] = [
    (b"\x03\x02\x23\x07", SPIR_V, COMPILE),
    (b"\x07\x23\x02\x03", SPIR_V, COMPILE),
    (b"ML\xEFR", "MLIR bytecode", "translate it to LLVM IR first (mlir-translate --mlir-to-llvmir)"),
    (b"CPCH", "a precompiled header or module of clang", COMPILE_SOURCE),
    (b"gpch", "a precompiled header of GCC", COMPILE_SOURCE),
    (b"rust\0\0\0", "metadata of a Rust crate", "name the crate's library (.rlib)"),
    (
        b"__CLANG_OFFLOAD_BUNDLE__",
        "a bundle of modules for several devices",
        "take it apart first (clang-offload-bundler)",
    ),
    (b"\x1F\x8B", "compressed by gzip", UNPACK),
    (b"\x28\xB5\x2F\xFD", "compressed by zstd", UNPACK),
    (b"\xFD7zXZ\0", "compressed by xz", UNPACK),
    (b"BZh", "compressed by bzip2", UNPACK),
    (b"PK\x03\x04", "a ZIP archive", UNPACK),
    (b"GROUP", LINKER_SCRIPT, NAME_FILES),
    (b"INPUT", LINKER_SCRIPT, NAME_FILES),
    (b"OUTPUT_FORMAT", LINKER_SCRIPT, NAME_FILES),
    (b"/* GNU ld script", LINKER_SCRIPT, NAME_FILES),
    (b"SECTIONS", LINKER_SCRIPT, NAME_FILES),
    (b"#!", "a script of another language", "run it by itself"),
];
const SPIR_V: &str = "a SPIR-V module";
const COMPILE_SOURCE: &str = "name its source";
const LINKER_SCRIPT: &str = "a linker script";
const NAME_FILES: &str = "name the objects and libraries that it names";

/// The format of a file that the engine does not take, with advice. `None` if the format is not known.
pub fn foreign_format(bytes: &[u8]) -> Option<String> {
    if let Some(what) = foreign_object(bytes) {
        return Some(format!("{what}; {COMPILE}"));
    }
    let known = OTHERS.iter().find(|(start, ..)| bytes.starts_with(start));
    known.map(|(_, what, advice)| format!("{what}; {advice}"))
}

/// The kind of an object, program or archive of another system.
pub(super) fn foreign_object(bytes: &[u8]) -> Option<&'static str> {
    // Both begin alike. One goes on with how many programs it has, the other with a version that is larger.
    if let [0xCA, 0xFE, 0xBA, 0xBE | 0xBF, _, _, _, count, ..] = bytes {
        return Some(if *count < 40 { MACH_O } else { "a class of Java" });
    }
    OBJECTS.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_named_with_what_to_do() {
        for (start, what) in OBJECTS {
            let text = foreign_format(&[start, &[1; 20]].concat()).expect("it is known");
            assert!(text.starts_with(what) && text.contains("--target=x86_64-linux-gnu"), "{text}");
        }
        for (start, what, advice) in OTHERS {
            assert_eq!(foreign_format(start), Some(format!("{what}; {advice}")));
        }
        assert_eq!(foreign_object(b"\xCA\xFE\xBA\xBE\0\0\0\x02"), Some(MACH_O));
        assert_eq!(foreign_object(b"\xCA\xFE\xBA\xBE\0\0\0\x41"), Some("a class of Java"));
        for known in [&b"\x7FELF"[..], b"BC\xC0\xDE", b"!<arch>\n", b"", b"define", b"\xCA\xFE", b"text"] {
            assert_eq!(foreign_format(known), None);
        }
    }
}
