//! The pipeline that generates code, kept with its target machine from one module to the next.
//!
//! Building one (passes, assembler, streams) takes 0.2 ms at `O0` and 0.5 ms at `O2`. A small function at `O0` takes as long.
//!
//! Holds: an object has the same bytes whether its pipeline is new or has generated others. LLVM resets a pipeline at the end of each
//! module (`AsmPrinter::doFinalization`, `MachineModuleInfo::finalize`), but not all of it. So a pipeline generates another module only if
//! the one before asked for nothing that is unknown here: `emitter.cpp` lists the module flags, named metadata and attributes that are
//! known to leave nothing, and each other one gives the module a pipeline of its own. Passes and streams of LLVM 22:
//!
//! | what may stay | by what it comes | so |
//! |---|---|---|
//! | relocations of directives (`MCAssembler::reset` leaves them) | the flag `CG Profile`; `.reloc` | not in the list; assembly |
//! | macros and numbered labels (`MCContext`), `.cfi_sections` (`MCObjectStreamer`) | assembly of the module or of a body | a pipeline of its own |
//! | which unwind section was needed (`AsmPrinter`), the version of DWARF (`MCContext`), handlers of debug information | `llvm.dbg.cu` | not in the list |
//! | the handler of pseudo probes (`AsmPrinter`) | `llvm.pseudo_probe_desc` | not in the list |
//! | functions that are garbage-collected (`GCModuleInfo`) | `gc` | a pipeline of its own |
//! | labels of places (`AsmPrinter::PCSectionsSymbols`) | `!pcsections` | a pipeline of its own |
//! | linker options, dependent libraries, figures, partitions, the call graph, type ids (`TargetLoweringObjectFileELF`, `AsmPrinter`) | named metadata and flags | not in the lists |
//! | sleds of XRay, patchable entries, split stacks (`AsmPrinter`), thunks (`ThunkInserter`) | attributes | not in the list, but for thunks, which LLVM forgets |
//! | stack maps (`StackMaps`), labels of blocks (`AddrLabelMap`), exception tables, COMDATs, unique sections | the code itself | LLVM forgets them |
//! | fault maps, addresses of basic blocks, sizes of stacks, addresses that matter | options of LLVM | nothing here sets them |
//! | what the C library has (`TargetLibraryInfo`, `RuntimeLibcallsInfo`) | the triple | a kept pipeline serves one triple |
//! | values that must stay (`TargetLoweringObjectFileELF::Used`) | `llvm.used` | the machine goes too (`target_machine.rs`) |
//!
//! Holds: between two modules a pipeline refers to no LLVM context, and no value refers to it. Analyses are released after the last pass
//! that uses them.
//!
//! Holds: the memory of a pipeline is bounded by [`KEPT_BYTES_MAX`]. It consists of names of relocation sections (`MCContext`), which stand
//! in the objects too, and room for the largest object.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use llvm_sys::target_machine::LLVMTargetMachineRef;

use super::ffi::{self, MemoryBuffer};
use super::module::LockedModule;
use super::progress;

/// How many bytes of objects a pipeline generates before a new one takes over.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// A pipeline of one target machine, which outlives it.
#[derive(Debug)]
pub(super) struct Emitter {
    raw: NonNull<c_void>,
    /// The triple that it generates code for. `None` if its one module leaves something behind.
    triple: Option<String>,
    /// The size of all objects so far.
    emitted_bytes: usize,
}

impl Emitter {
    /// Generates an object from `module` with the pipeline in `kept`, or with a new one. To be called inside [`ffi::enter_llvm`].
    ///
    /// Gives the pipeline beside the object. If LLVM reported an error, drop the pipeline: its state is not defined then. If LLVM gives up,
    /// the pipeline is leaked.
    ///
    /// # Safety
    /// The machine is alive, has no other user during the call, and is disposed of after its emitters. `kept` is one of those.
    pub(super) unsafe fn emit(
        kept: &Cell<Option<Self>>,
        machine: LLVMTargetMachineRef,
        module: &LockedModule<'_>,
    ) -> Result<(Self, MemoryBuffer), String> {
        // SAFETY: the module is alive and held.
        let is_used_up = unsafe { ffi::uruk_llvm_emitter_is_used_up_by(module.raw()) };
        let triple = (!is_used_up).then(|| module.triple());
        let kept = if is_used_up { None } else { kept.take().filter(|kept| kept.triple == triple) };
        let emitter = match kept {
            Some(kept) => kept,
            // SAFETY: the caller's obligation.
            None => unsafe { Self::create(machine, triple) }?,
        };
        Ok(emitter.run(module))
    }

    /// Whether other modules may follow.
    pub(super) fn may_be_kept(&self) -> bool {
        self.triple.is_some() && self.emitted_bytes <= KEPT_BYTES_MAX
    }

    /// Tells pipelines apart.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.raw.as_ptr() as usize
    }

    /// # Safety
    /// As for [`Self::emit`].
    unsafe fn create(machine: LLVMTargetMachineRef, triple: Option<String>) -> Result<Self, String> {
        // SAFETY: the caller's obligation. The answer is owned from here on.
        let raw = NonNull::new(unsafe { ffi::uruk_llvm_emitter_create(machine) });
        let raw = raw.ok_or_else(|| "this machine generates no objects".to_owned())?;
        Ok(Self { raw, triple, emitted_bytes: 0 })
    }

    fn run(self, module: &LockedModule<'_>) -> (Self, MemoryBuffer) {
        // If LLVM gives up, this frame is left, and the emitter stays as it is.
        let mut emitter = ManuallyDrop::new(self);
        let count = progress::is_watched().then_some(count as _);
        let data = ptr::from_ref(module).cast_mut().cast();
        // SAFETY: emitter and module are alive and ours, and `count` takes such a module; the buffer is owned from here on.
        let buffer = unsafe {
            MemoryBuffer::from_raw(ffi::uruk_llvm_emitter_run(
                emitter.raw.as_ptr(),
                module.raw(),
                count,
                data,
            ))
        };
        emitter.emitted_bytes += buffer.as_ref().len();
        (ManuallyDrop::into_inner(emitter), buffer)
    }
}

/// Called for each function of a module.
unsafe extern "C" fn count(module: *mut c_void, step: u32, done: u64, more: u64) {
    // SAFETY: `run` passes it, and waits.
    let module = unsafe { &*module.cast::<LockedModule<'_>>() };
    progress::tell(module.name(), step, done, more);
}

impl Drop for Emitter {
    fn drop(&mut self) {
        // SAFETY: `create` took the ownership, and its caller keeps the machine alive.
        unsafe { ffi::uruk_llvm_emitter_dispose(self.raw.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::machines::with_machine;
    use crate::ir::normalize::normalize;
    use crate::ir::target_machine::TargetMachine;
    use crate::ir::{CodegenLevel, CompileError, JitTargetMachineBuilder, ThreadSafeModule};
    use crate::object::ObjectBuffer;

    /// Modules that leave something behind, each beside one that would notice.
    const MODULES: &[(&str, &str)] = &[
        (
            "plain",
            "@text = private unnamed_addr constant [3 x i8] c\"ab\\00\"
             declare i32 @printf(ptr, ...)
             define i32 @plain(i32 %a, double %b) {
               %sum = fadd double %b, 1.25
               switch i32 %a, label %end [ i32 1, label %one i32 2, label %two i32 3, label %three i32 4, label %four ]
             one: ret i32 10
             two: ret i32 31
             three: ret i32 7
             four: ret i32 99
             end:
               %r = call i32 (ptr, ...) @printf(ptr @text, double %sum)
               ret i32 %r }",
        ),
        (
            "varargs",
            "declare void @llvm.va_start(ptr)
             define i32 @first(i32 %n, ...) {
               %list = alloca [24 x i8], align 16
               call void @llvm.va_start(ptr %list)
               %v = va_arg ptr %list, i32
               ret i32 %v }",
        ),
        (
            "exceptions",
            "$either = comdat any
             declare i32 @__gxx_personality_v0(...)
             declare void @may_throw()
             define linkonce_odr i32 @either() comdat personality ptr @__gxx_personality_v0 {
               invoke void @may_throw() to label %ok unwind label %bad
             ok: ret i32 0
             bad:
               %caught = landingpad { ptr, i32 } catch ptr null
               ret i32 1 }
             define i32 @calls() uwtable { %r = call i32 @either() ret i32 %r }",
        ),
        (
            "variables",
            "@mine = thread_local global i32 3
             @theirs = external thread_local global i32
             @tentative = common global [5 x i32] zeroinitializer
             @data = global i32 4
             @other = alias i32, ptr @data
             @chosen = ifunc i32 (), ptr @choose
             @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 200, ptr @start, ptr null }]
             define internal void @start() { store i32 1, ptr @mine ret void }
             define internal ptr @choose() { ret ptr @start }
             define i32 @sum() { %a = load i32, ptr @theirs %b = load i32, ptr @other %c = add i32 %a, %b ret i32 %c }",
        ),
        (
            "macro",
            "module asm \".cfi_sections .debug_frame\"
             module asm \".macro twice\\0Anop\\0Anop\\0A.endm\"
             module asm \".text\\0Abare: .cfi_startproc\\0A1: twice\\0Ajmp 1b\\0A.cfi_endproc\"
             define void @f() { ret void }",
        ),
        (
            "same-macro",
            "module asm \".macro twice\\0Aret\\0A.endm\"
             module asm \".text\\0Abare: twice\\0A1: jmp 1b\\0A.cfi_startproc\\0Aret\\0A.cfi_endproc\"
             define void @g() uwtable { ret void }",
        ),
        (
            "numbered-label",
            "define void @spin() { call void asm sideeffect \"1: jmp 1b\\0A2: jmp 2b\", \"\"() ret void }",
        ),
        (
            "blocks",
            "@targets = constant [2 x ptr] [ptr blockaddress(@jump, %a), ptr blockaddress(@jump, %b)]
             define i32 @jump(i32 %n) {
               %slot = getelementptr [2 x ptr], ptr @targets, i32 0, i32 %n
               %to = load ptr, ptr %slot
               indirectbr ptr %to, [label %a, label %b]
             a: ret i32 1
             b: ret i32 2 }",
        ),
        (
            "stackmap",
            "declare void @llvm.experimental.stackmap(i64, i32, ...)
             define void @mapped(i32 %x) {
               call void (i64, i32, ...) @llvm.experimental.stackmap(i64 4, i32 8, i32 %x)
               ret void }",
        ),
        (
            "assumptions",
            "declare void @llvm.assume(i1)
             define i32 @assumed(ptr %p, i32 %n) {
               %large = icmp sgt i32 %n, 4
               call void @llvm.assume(i1 %large)
               br label %loop
             loop:
               %i = phi i32 [ 0, %0 ], [ %next, %loop ]
               %next = add nsw i32 %i, 1
               %slot = getelementptr i32, ptr %p, i32 %i
               store i32 %next, ptr %slot
               %done = icmp eq i32 %next, %n
               br i1 %done, label %end, label %loop
             end: ret i32 %next }",
        ),
        (
            "gnu-library",
            "declare double @llvm.exp10.f64(double)
             define double @power(double %x) { %r = call double @llvm.exp10.f64(double %x) ret double %r }",
        ),
        (
            "other-library",
            "target triple = \"x86_64-unknown-linux-musl\"
             declare double @llvm.sin.f64(double)
             declare double @llvm.cos.f64(double)
             define double @both(double %x) {
               %s = call double @llvm.sin.f64(double %x)
               %c = call double @llvm.cos.f64(double %x)
               %r = fadd double %s, %c
               ret double %r }",
        ),
        (
            "gnu-library-again",
            "declare double @llvm.sin.f64(double)
             declare double @llvm.cos.f64(double)
             define double @both(double %x) {
               %s = call double @llvm.sin.f64(double %x)
               %c = call double @llvm.cos.f64(double %x)
               %r = fadd double %s, %c
               ret double %r }",
        ),
        ("collected", "define void @collected(ptr %p) gc \"ocaml\" { call void @outside() ret void } declare void @outside()"),
        (
            "probes",
            "declare void @llvm.pseudoprobe(i64, i64, i32, i64)
             define void @probed() { call void @llvm.pseudoprobe(i64 77, i64 1, i32 0, i64 -1) ret void }
             !llvm.pseudo_probe_desc = !{!0}
             !0 = !{i64 77, i64 281479271677951, !\"probed\"}",
        ),
        (
            "unwinds-for-debuggers-alone",
            "declare void @outside()
             define void @quiet() nounwind !dbg !4 { ret void, !dbg !6 }
             !llvm.dbg.cu = !{!0}
             !llvm.module.flags = !{!2, !3}
             !0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, producer: \"p\", emissionKind: FullDebug)
             !1 = !DIFile(filename: \"quiet.c\", directory: \"/\")
             !2 = !{i32 7, !\"Dwarf Version\", i32 3}
             !3 = !{i32 2, !\"Debug Info Version\", i32 3}
             !4 = distinct !DISubprogram(name: \"quiet\", file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
             !5 = !DISubroutineType(types: !{null})
             !6 = !DILocation(line: 2, scope: !4)",
        ),
        (
            "debug",
            "define i32 @known(i32 %a) uwtable !dbg !4 { %b = mul i32 %a, 3, !dbg !6 ret i32 %b, !dbg !6 }
             !llvm.dbg.cu = !{!0}
             !llvm.module.flags = !{!2, !3}
             !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, producer: \"q\", emissionKind: FullDebug)
             !1 = !DIFile(filename: \"known.c\", directory: \"/\")
             !2 = !{i32 7, !\"Dwarf Version\", i32 5}
             !3 = !{i32 2, !\"Debug Info Version\", i32 3}
             !4 = distinct !DISubprogram(name: \"known\", file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
             !5 = !DISubroutineType(types: !{null})
             !6 = !DILocation(line: 2, scope: !4)",
        ),
        (
            "retained",
            "@kept = global i32 1, section \"mine\"
             @llvm.used = appending global [1 x ptr] [ptr @kept], section \"llvm.metadata\"
             !llvm.ident = !{!0}
             !llvm.commandline = !{!0}
             !0 = !{!\"somebody\"}",
        ),
        (
            "profiled",
            "declare void @outside()
             define void @hot() !prof !2 { call void @outside() ret void }
             define void @caller() !prof !2 { call void @hot() ret void }
             !llvm.module.flags = !{!0}
             !0 = !{i32 5, !\"CG Profile\", !1}
             !1 = distinct !{!3, !4}
             !2 = !{!\"function_entry_count\", i64 10}
             !3 = !{ptr @hot, ptr @outside, i64 10}
             !4 = !{ptr @caller, ptr @hot, i64 10}",
        ),
        (
            "profiled-and-undefined",
            "declare void @elsewhere()
             define void @cold() { call void @elsewhere() ret void }
             !llvm.module.flags = !{!0}
             !0 = !{i32 5, !\"CG Profile\", !1}
             !1 = distinct !{!2}
             !2 = !{ptr @cold, ptr @elsewhere, i64 7}",
        ),
        (
            "instrumented-by-xray",
            "define i32 @watched(i32 %x) \"function-instrument\"=\"xray-always\" \"xray-log-args\"=\"1\" { ret i32 %x }",
        ),
        (
            "patchable",
            "define i32 @patched(i32 %x) \"patchable-function-entry\"=\"3\" \"patchable-function-prefix\"=\"2\" { ret i32 %x }",
        ),
        (
            "split-stacks",
            "declare void @deeper(ptr)
             define void @grows() \"split-stack\" { %p = alloca [8 x i64] call void @deeper(ptr %p) ret void }",
        ),
        (
            "no-split-stacks",
            "declare void @deeper(ptr)
             define void @grows() \"split-stack\" { %p = alloca [8 x i64] call void @deeper(ptr %p) ret void }
             define void @stays() { ret void }",
        ),
        (
            "type-ids",
            "define void @checked() !kcfi_type !1 { ret void }
             define void @calls(ptr %f) !kcfi_type !1 { call void %f() [ \"kcfi\"(i32 12) ] ret void }
             !llvm.module.flags = !{!0}
             !0 = !{i32 4, !\"kcfi\", i32 1}
             !1 = !{i32 12}",
        ),
        (
            "call-graph",
            "define void @leads(ptr %f) !type !2 { call void %f(), !callee_type !1 ret void }
             !llvm.module.flags = !{!0}
             !0 = !{i32 1, !\"Call Graph Section\", i32 1}
             !1 = !{!2}
             !2 = !{i64 0, !\"_ZTSFvvE.generalized\"}",
        ),
        (
            "places",
            "@place = global i64 1
             define i64 @placed() !pcsections !0 { %v = load atomic i64, ptr @place acquire, align 8, !pcsections !0 ret i64 %v }
             !0 = !{!\"places!C\"}",
        ),
        (
            "linker-options",
            "@here = global i32 1, partition \"other\"
             define void @linked() { ret void }
             !llvm.linker.options = !{!0}
             !llvm.dependent-libraries = !{!1}
             !llvm.stats = !{!2}
             !0 = !{!\"lib\", !\"m\"}
             !1 = !{!\"z\"}
             !2 = !{!\"figures\", i64 3}",
        ),
        (
            "property-notes",
            "define void @noted() { ret void }
             !llvm.module.flags = !{!0, !1}
             !0 = !{i32 8, !\"cf-protection-branch\", i32 1}
             !1 = !{i32 8, !\"cf-protection-return\", i32 1}",
        ),
        (
            "retpolines",
            "define void @away(ptr %f) \"target-features\"=\"+retpoline-indirect-calls\" { call void %f() ret void }",
        ),
        (
            "merged-sections",
            "@words = constant [2 x i32] [i32 1, i32 2], section \"mixed\"
             @text = private unnamed_addr constant [3 x i8] c\"xy\\00\", section \"mixed\"
             @written = global i32 5, section \"mixed2\"
             define ptr @read() { ret ptr @text }",
        ),
        // All that a module may ask for and leave its pipeline to others.
        (
            "ordinary",
            "define double @ordinary(double %x, i32 %n) #0 {
               %room = alloca [64 x i8], align 64
               store double %x, ptr %room
               switch i32 %n, label %end [ i32 1, label %one i32 2, label %two i32 3, label %one i32 4, label %two ]
             one: ret double 2.0
             two: ret double %x
             end:
               %y = fmul fast double %x, %x
               ret double %y }
             attributes #0 = { sspstrong uwtable
               \"alloc-family\"=\"malloc\" \"alloc-variant-zeroed\"=\"calloc\" \"approx-func-fp-math\"=\"true\" \"denormal-fp-math\"=\"preserve-sign,preserve-sign\"
               \"disable-tail-calls\"=\"true\" \"frame-pointer\"=\"all\" \"less-precise-fpmad\"=\"true\" \"min-legal-vector-width\"=\"256\"
               \"no-builtins\"=\"\" \"no-infs-fp-math\"=\"true\" \"no-inline-line-tables\"=\"\" \"no-jump-tables\"=\"true\"
               \"no-nans-fp-math\"=\"true\" \"no-realign-stack\"=\"\" \"no-signed-zeros-fp-math\"=\"true\" \"no-trapping-math\"=\"true\"
               \"prefer-vector-width\"=\"128\" \"probe-stack\"=\"inline-asm\" \"stack-protector-buffer-size\"=\"4\" \"stackrealign\"=\"\"
               \"target-cpu\"=\"x86-64-v2\" \"target-features\"=\"+sse4.1\" \"tune-cpu\"=\"generic\" \"uniform-work-group-size\"=\"true\"
               \"unsafe-fp-math\"=\"true\" \"use-soft-float\"=\"false\" }
             !llvm.module.flags = !{!0, !1, !2, !3, !4, !5, !6, !7, !8, !9, !10, !11, !12}
             !llvm.ident = !{!13}
             !llvm.commandline = !{!13}
             !llvm.errno.tbaa = !{!14}
             !0 = !{i32 2, !\"Debug Info Version\", i32 3}
             !1 = !{i32 1, !\"EnableSplitLTOUnit\", i32 1}
             !2 = !{i32 1, !\"Large Data Threshold\", i64 1000}
             !3 = !{i32 8, !\"PIC Level\", i32 2}
             !4 = !{i32 7, !\"PIE Level\", i32 0}
             !5 = !{i32 1, !\"RtLibUseGOT\", i32 1}
             !6 = !{i32 1, !\"SemanticInterposition\", i32 1}
             !7 = !{i32 1, !\"ThinLTO\", i32 1}
             !8 = !{i32 1, !\"UnifiedLTO\", i32 1}
             !9 = !{i32 1, !\"direct-access-external-data\", i32 1}
             !10 = !{i32 7, !\"frame-pointer\", i32 2}
             !11 = !{i32 7, !\"uwtable\", i32 2}
             !12 = !{i32 1, !\"wchar_size\", i32 4}
             !13 = !{!\"none\"}
             !14 = !{!15, !15, i64 0}
             !15 = !{!\"int\", !16, i64 0}
             !16 = !{!\"tree\"}",
        ),
        // Two errors: the first leaves assembly behind, the second is found without any.
        ("no-instruction", "module asm \"frobnicate\"\ndefine void @f() { ret void }"),
        ("defined-twice", "@g = global i32 1\n@\"\\01g\" = global i32 2\ndefine void @h() uwtable { ret void }"),
    ];

    /// The object that the machine generates from a module, or the error.
    fn emit(
        machine: &TargetMachine,
        target: &JitTargetMachineBuilder,
        (name, text): (&str, &str),
    ) -> Result<Vec<u8>, String> {
        let source = ObjectBuffer::new(name, text.as_bytes().to_vec());
        let module = ThreadSafeModule::parse(&source).unwrap_or_else(|error| panic!("{error}"));
        let locked = module.lock().expect("a new context");
        normalize(&locked, target).expect("for this machine");
        match machine.emit_object(&locked) {
            Ok(object) => Ok(object.bytes().to_vec()),
            Err(error @ CompileError::Codegen { .. }) => Err(error.to_string()),
            Err(error) => panic!("{error}"),
        }
    }

    fn targets() -> Vec<JitTargetMachineBuilder> {
        let mut targets = Vec::new();
        for codegen_level in [CodegenLevel::None, CodegenLevel::Default] {
            for code_model in [crate::ir::CodeModel::Small, crate::ir::CodeModel::Large] {
                let mut options = JitTargetMachineBuilder::host().expect("host target").options().clone();
                (options.codegen_level, options.code_model) = (codegen_level, code_model);
                targets.push(JitTargetMachineBuilder::new(options).expect("x86-64 has it"));
            }
        }
        targets
    }

    #[test]
    fn an_object_is_the_same_whatever_its_pipeline_has_generated_before() {
        for target in targets() {
            let new = || TargetMachine::create(target.options()).expect("a machine");
            let expected: Vec<_> = MODULES.iter().map(|module| emit(&new(), &target, *module)).collect();
            let errors: Vec<_> = expected.iter().filter_map(|made| made.as_ref().err()).collect();
            assert_eq!(errors.len(), 2, "{errors:?}");
            let count = MODULES.len();
            // Steps that share no factor with the count visit every module, and put others before each.
            let steps = (1..count).filter(|step| !count.is_multiple_of(*step) || *step == 1);
            for (round, step) in steps.enumerate() {
                for turn in 0..count {
                    let index = (round + turn * step) % count;
                    for _ in 0..=turn % 2 {
                        let made = with_machine(target.options(), |kept| emit(kept, &target, MODULES[index]));
                        let made = made.expect("a machine");
                        let name = MODULES[index].0;
                        assert!(made == expected[index], "{name}, step {step}, {:?}", target.options());
                    }
                }
            }
        }
    }

    #[test]
    fn a_pipeline_serves_one_module_after_another_until_there_is_an_error() {
        crate::ir::target::initialize().expect("LLVM");
        let target = JitTargetMachineBuilder::host().expect("host target");
        let machine = TargetMachine::create(target.options()).expect("a machine");
        let emit = |name| {
            let module = MODULES.iter().find(|module| module.0 == name).expect("such a module");
            emit(&machine, &target, *module).is_ok()
        };
        assert_eq!(machine.emitter_address(), None);
        assert!(emit("plain"));
        let first = machine.emitter_address();
        assert_ne!(first, None);
        for other in [
            "exceptions",
            "ordinary",
            "macro",
            "debug",
            "collected",
            "probes",
            "profiled",
            "type-ids",
            "variables",
        ] {
            assert!(emit(other));
            assert_eq!(machine.emitter_address(), first, "{other}");
        }
        assert!(!emit("no-instruction"));
        assert_eq!(machine.emitter_address(), first, "assembly is read by another pipeline");
        assert!(!emit("defined-twice"));
        assert_eq!(machine.emitter_address(), None);
        assert!(emit("plain") && machine.may_be_kept());
        assert!(emit("retained") && !machine.may_be_kept());
    }
}
