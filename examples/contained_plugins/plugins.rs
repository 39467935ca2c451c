//! The plugins: each defines `price`, which a host calls with a net price.

pub(crate) struct Plugin {
    pub(crate) name: &'static str,
    /// IR that a plugin's author compiled; a real host would read files of bitcode.
    pub(crate) code: &'static str,
    /// A part of the line that the host prints.
    pub(crate) outcome: &'static str,
}

pub(crate) const PLUGINS: [Plugin; 6] = [
    Plugin {
        name: "fine",
        code: "define i64 @price(i64 %net) { %gross = add i64 %net, 19 ret i64 %gross }",
        outcome: "gives 119",
    },
    Plugin {
        name: "crashes",
        code: "define i64 @price(i64 %net) null_pointer_is_valid { %gross = load volatile i64, ptr null ret i64 %gross }",
        outcome: "was ended by SIGSEGV",
    },
    Plugin {
        name: "loops",
        code: "define i64 @price(i64 %net) { br label %again again: br label %again }",
        outcome: "took more than 200ms, and was ended",
    },
    Plugin {
        name: "exits",
        code: "declare void @exit(i32) define i64 @price(i64 %net) { call void @exit(i32 7) unreachable }",
        outcome: "exited with code 7",
    },
    // An instruction of another machine: LLVM takes that for a fatal error.
    Plugin {
        name: "foreign",
        code: "declare i32 @llvm.aarch64.crc32b(i32, i32)
            define i64 @price(i64 %net) {
                %short = trunc i64 %net to i32
                %gross = call i32 @llvm.aarch64.crc32b(i32 %short, i32 19)
                %long = zext i32 %gross to i64
                ret i64 %long
            }",
        outcome: "LLVM gave up during code generation",
    },
    Plugin { name: "no code", code: "BC\u{1}\u{2} and so on", outcome: "cannot be read as LLVM IR" },
];
