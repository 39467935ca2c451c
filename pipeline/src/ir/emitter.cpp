// Code generation that is kept from one module to the next. Called from `emitter.rs` alone, which says when that is sound.

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Pass.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

using namespace llvm;

namespace {

// Hears of functions: how many are done, and how many more there are. `progress.rs` has the steps.
using CountFunctions = void (*)(void *Data, uint32_t Step, uint64_t Done, uint64_t More);

constexpr uint32_t CompiledStep = 2;

struct Emitter {
  TargetMachine &Machine;
  CountFunctions Count = nullptr;
  void *CountData = nullptr;
  SmallVector<char, 0> Object;
  raw_svector_ostream Stream{Object};
  // Goes first, as it refers to the others.
  legacy::PassManager Passes;

  explicit Emitter(TargetMachine &Machine) : Machine(Machine) {}
};

// Stands behind the printer, which a function leaves as machine code.
struct CountPass : FunctionPass {
  static char ID;
  Emitter &E;

  explicit CountPass(Emitter &E) : FunctionPass(ID), E(E) {}
  bool runOnFunction(Function &) override {
    if (E.Count) E.Count(E.CountData, CompiledStep, 1, 0);
    return false;
  }
  void getAnalysisUsage(AnalysisUsage &Usage) const override { Usage.setPreservesAll(); }
};

char CountPass::ID = 0;

// A module asks code generation for things by flags, named metadata and attributes of functions. These leave nothing behind; of others
// that is not known. `emitter.rs` has a test that every entry has to pass.
constexpr StringLiteral HarmlessFlags[] = {
    "Code Model", "Debug Info Version", "Dwarf Version", "EnableSplitLTOUnit", "Large Data Threshold", "PIC Level", "PIE Level",
    "RtLibUseGOT", "SemanticInterposition", "ThinLTO", "UnifiedLTO", "cf-protection-branch", "cf-protection-return",
    "direct-access-external-data", "frame-pointer", "uwtable", "wchar_size"};

constexpr StringLiteral HarmlessMetadata[] = {
    "llvm.commandline", "llvm.errno.tbaa", "llvm.ident", "llvm.module.flags", "uruk.version"};

constexpr StringLiteral HarmlessAttributes[] = {
    "alloc-family", "alloc-variant-zeroed", "approx-func-fp-math", "denormal-fp-math", "disable-tail-calls", "frame-pointer",
    "less-precise-fpmad", "min-legal-vector-width", "no-builtins", "no-infs-fp-math", "no-inline-line-tables", "no-jump-tables", "no-nans-fp-math",
    "no-realign-stack", "no-signed-zeros-fp-math", "no-trapping-math", "prefer-vector-width", "probe-stack",
    "stack-protector-buffer-size", "stackrealign", "target-cpu", "target-features", "tune-cpu", "uniform-work-group-size",
    "unsafe-fp-math", "use-soft-float"};

bool leavesFlagsBehind(const Module &M) {
  SmallVector<Module::ModuleFlagEntry, 8> Flags;
  M.getModuleFlagsMetadata(Flags);
  return any_of(Flags, [](auto &Flag) { return !is_contained(HarmlessFlags, Flag.Key->getString()); }) ||
         any_of(M.named_metadata(), [](auto &Named) { return !is_contained(HarmlessMetadata, Named.getName()); });
}

bool leavesAnythingBehind(const Function &F) {
  if (F.hasGC()) return true;
  for (Attribute A : F.getAttributes().getFnAttrs())
    if (A.isStringAttribute() && !is_contained(HarmlessAttributes, A.getKindAsString())) return true;
  return any_of(instructions(F), [](const Instruction &I) {
    auto *Call = dyn_cast<CallBase>(&I);
    return (Call && Call->isInlineAsm()) || I.hasMetadata(LLVMContext::MD_pcsections);
  });
}

} // namespace

extern "C" {

// Whether generating code for the module leaves something behind in a pipeline that would show in later modules.
bool uruk_llvm_emitter_is_used_up_by(LLVMModuleRef Handle) {
  Module &M = *unwrap(Handle);
  return !M.getModuleInlineAsm().empty() || leavesFlagsBehind(M) || any_of(M, leavesAnythingBehind);
}

// Answers null if the machine generates no objects.
Emitter *uruk_llvm_emitter_create(LLVMTargetMachineRef T) {
  // A plain pointer without an owner: if LLVM gives up, no destructor of this frame runs.
  auto *E = new Emitter(*reinterpret_cast<TargetMachine *>(T));
  if (!E->Machine.addPassesToEmitFile(E->Passes, E->Stream, nullptr, CodeGenFileType::ObjectFile)) {
    E->Passes.add(new CountPass(*E));
    return E;
  }
  delete E;
  return nullptr;
}

void uruk_llvm_emitter_dispose(Emitter *E) { delete E; }

// Generates an object, as `LLVMTargetMachineEmitToMemoryBuffer` does. `Count`, unless null, hears of each function.
LLVMMemoryBufferRef uruk_llvm_emitter_run(Emitter *E, LLVMModuleRef Handle, CountFunctions Count, void *Data) {
  Module &M = *unwrap(Handle);
  E->Count = Count, E->CountData = Data;
  if (Count) Count(Data, CompiledStep, 0, count_if(M, [](Function &F) { return !F.isDeclarationForLinker(); }));
  M.setDataLayout(E->Machine.createDataLayout());
  E->Object.clear();
  E->Passes.run(M);
  return LLVMCreateMemoryBufferWithMemoryRangeCopy(E->Object.data(), E->Object.size(), "");
}

} // extern "C"
