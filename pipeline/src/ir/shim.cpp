// Functions that this crate needs and LLVM's C interface lacks. Called from `ffi.rs` alone.
//
// Every function takes handles of LLVM's C interface that the caller keeps alive and owns exclusively, and
// keeps none of them.

#include "assembly.h"
#include <cstdio>
#include <exception>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Config/Targets.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/GlobalAlias.h>
#include <llvm/IR/GlobalIFunc.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Target/TargetMachine.h>

using namespace llvm;

namespace {

// Bits of a symbol; `ffi.rs` has the same list.
enum : unsigned { Exported = 1, Weak = 2, Common = 4, Callable = 8, ThreadLocal = 16, Linkonce = 32, Local = 64, Undefined = 128 };
// Bits of a module.
enum : unsigned { Initializers = 1, Finalizers = 2, SharesSections = 4, ThreadLocals = 8, CodeSharesSections = 16 };

bool defines(const GlobalValue &G) {
  return !G.isDeclarationForLinker() && !G.hasAppendingLinkage() && G.hasName() && !G.getName().starts_with("llvm.");
}

bool definesForOthers(const GlobalValue &G) { return defines(G) && !G.hasLocalLinkage(); }

// Whether the module declares a symbol that is defined elsewhere. Bodies may be unread, so it is not known whether the symbol is used.
bool refersToOthers(const GlobalValue &G) {
  return G.isDeclarationForLinker() && G.hasName() && !G.getName().starts_with("llvm.");
}

unsigned symbolBits(const GlobalValue &G) {
  unsigned Bits = 0;
  if (!G.hasHiddenVisibility()) Bits |= Exported;
  // A COMDAT yields as a whole, so each of its members can.
  const Comdat *Group = G.getComdat();
  bool Yields = Group && Group->getSelectionKind() != Comdat::NoDeduplicate;
  if (G.hasWeakLinkage() || G.hasLinkOnceLinkage() || Yields) Bits |= Weak;
  if (G.hasLinkOnceLinkage()) Bits |= Linkonce;
  if (G.hasCommonLinkage()) Bits |= Common;
  if (G.getValueType()->isFunctionTy()) Bits |= Callable;
  if (G.isThreadLocal()) Bits |= ThreadLocal;
  if (G.hasLocalLinkage()) Bits |= Local;
  return Bits;
}

// The global that linkers call `Name`: LLVM spells a name that is not to be mangled with a leading \1.
GlobalValue *find(LLVMModuleRef Handle, const char *Name, size_t Size) {
  StringRef Plain(Name, Size);
  if (GlobalValue *G = unwrap(Handle)->getNamedValue(Plain)) return G;
  return unwrap(Handle)->getNamedValue(("\1" + Plain).str());
}

unsigned sectionBits(StringRef Name) {
  if (isIdentifier(Name)) return SharesSections;
  auto Under = [&](StringRef Stem) {
    return Name.starts_with(Stem) && (Name.size() == Stem.size() || Name[Stem.size()] == '.');
  };
  if (Under(".init_array") || Under(".preinit_array") || Under(".ctors")) return Initializers;
  if (Under(".fini_array") || Under(".dtors")) return Finalizers;
  return 0;
}

// A declaration that stands for `G` from now on, under its name and visible as it was.
GlobalValue *declareInPlaceOf(GlobalValue &G) {
  Module &M = *G.getParent();
  GlobalValue *Declaration;
  if (auto *Type = dyn_cast<FunctionType>(G.getValueType()))
    Declaration = Function::Create(Type, GlobalValue::ExternalLinkage, G.getAddressSpace(), "", &M);
  else
    Declaration = new GlobalVariable(M, G.getValueType(), false, GlobalValue::ExternalLinkage, nullptr, "",
                                     nullptr, G.getThreadLocalMode(), G.getAddressSpace());
  Declaration->setVisibility(G.getVisibility());
  Declaration->takeName(&G);
  return Declaration;
}

// Sections by name that code generation makes for an object of IR.
unsigned bitsOfAttributes(const GlobalObject &Object) {
  unsigned Bits = 0;
  if (auto *F = dyn_cast<Function>(&Object)) {
    // The addresses of these functions: `__patchable_function_entries`, `__mcount_loc`, `xray_instr_map`.
    for (const char *Listed : {"patchable-function-entry", "mrecord-mcount", "function-instrument", "xray-instruction-threshold"})
      if (F->hasFnAttribute(Listed) && F->getFnAttribute(Listed).getValueAsString() != "xray-never") Bits |= SharesSections | CodeSharesSections;
    return Bits | sectionBits(F->getFnAttribute("implicit-section-name").getValueAsString());
  }
  if (auto *V = dyn_cast<GlobalVariable>(&Object))
    for (const char *Chosen : {"bss-section", "data-section", "rodata-section", "relro-section"})
      if (V->hasAttribute(Chosen)) Bits |= sectionBits(V->getAttribute(Chosen).getValueAsString());
  return Bits;
}

// What assembly in the bodies that were read defines, and code generation.
AssemblyNames namesOfBodies(const Module &M) {
  AssemblyNames Names;
  for (const Function &F : M)
    if (!F.hasAvailableExternallyLinkage()) Names.read(F);
  if (definesRootChain(M)) {
    AssemblySymbol &Chain = Names.Symbols[RootChain];
    Chain.IsDefined = Chain.IsGlobal = Chain.IsWeak = true, Chain.IsInCode = false;
  }
  return Names;
}

unsigned symbolBits(const AssemblySymbol &Symbol) {
  unsigned Bits = Symbol.IsHidden ? 0 : +Exported;
  if (Symbol.IsWeak) Bits |= Weak;
  if (Symbol.IsInCode) Bits |= Callable;
  if (Symbol.IsThreadLocal) Bits |= ThreadLocal;
  return Bits;
}

bool carriesAliases(const GlobalObject &Object) {
  for (const GlobalAlias &A : Object.getParent()->aliases())
    if (A.getAliaseeObject() == &Object) return true;
  for (const GlobalIFunc &I : Object.getParent()->ifuncs())
    if (I.getResolverFunction() == &Object) return true;
  return false;
}

} // namespace

extern "C" {

// Runs `Body`; answers false, with the reason, if a C++ exception came out of it. Rust panics pass through.
bool uruk_llvm_guard(void (*Body)(void *), void *Data, char *Reason, size_t ReasonSize) {
  try {
    Body(Data);
    return true;
  } catch (const std::exception &E) {
    std::snprintf(Reason, ReasonSize, "%s", E.what());
    return false;
  }
}

void uruk_llvm_install_bad_alloc_handler(void (*Handler)(void *, const char *, bool)) {
  install_bad_alloc_error_handler(Handler, nullptr);
}

// LLVM's C interface leaves these as a static linker of the last century wants them.
void uruk_llvm_configure_target_machine(LLVMTargetMachineRef T, bool FunctionSections, bool DataSections,
                                        uint64_t LargeDataThreshold) {
  TargetMachine &Machine = *reinterpret_cast<TargetMachine *>(T);
  Machine.setLargeDataThreshold(LargeDataThreshold);
  TargetOptions &Options = Machine.Options;
  Options.UseInitArray = true;
  Options.FunctionSections = FunctionSections;
  Options.DataSections = DataSections;
}

// Makes LLVM ready to generate code for AArch64, unless it was built without.
void uruk_llvm_initialize_aarch64() {
#if LLVM_HAS_AARCH64_TARGET
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  LLVMInitializeAArch64AsmParser();
#endif
}

// How hard the machine's code generation tries, by LLVM's number.
unsigned uruk_llvm_machine_level(LLVMTargetMachineRef Machine) {
  return unsigned(reinterpret_cast<TargetMachine *>(Machine)->getOptLevel());
}

// The code model that the module was compiled for, or -1, and the size from which on data is large.
int uruk_llvm_code_model(LLVMModuleRef Handle, uint64_t *LargeDataThreshold) {
  const Module &M = *unwrap(Handle);
  if (auto Threshold = M.getLargeDataThreshold()) *LargeDataThreshold = *Threshold;
  auto Model = M.getCodeModel();
  return Model ? int(*Model) : -1;
}

// Those that are read: bodies left in bitcode count for nothing.
uint64_t uruk_llvm_instructions(LLVMModuleRef Handle) { return unwrap(Handle)->getInstructionCount(); }

// From this size on, an offset into a variable and what lies between it and the code may not fit into 32 bits.
static constexpr uint64_t GreatVariableBytes = 64 << 20;

static bool isGreat(const GlobalVariable &V, const DataLayout &Layout) {
  return V.getValueType()->isSized() && Layout.getTypeAllocSize(V.getValueType()) >= GreatVariableBytes;
}

// See `normalize.rs` for what and why.
void uruk_llvm_normalize(LLVMModuleRef Handle) {
  Module &M = *unwrap(Handle);
  if (M.getPIELevel() != PIELevel::Default) M.setModuleFlag(Module::Max, "PIE Level", 0u);
  if (M.getPICLevel() != PICLevel::BigPIC) M.setModuleFlag(Module::Min, "PIC Level", 2u);
  if (M.getDirectAccessExternalData()) M.setModuleFlag(Module::Max, "direct-access-external-data", 0u);
  for (GlobalValue &G : M.global_values()) {
    if (G.isThreadLocal() && isa<GlobalVariable>(G)) G.setThreadLocalMode(GlobalValue::GeneralDynamicTLSModel);
    // A called function may have a stub elsewhere, which is its address then.
    bool Elsewhere = G.isDeclarationForLinker() || G.isWeakForLinker() || G.getValueType()->isFunctionTy();
    if (Elsewhere && G.hasDefaultVisibility() && !G.hasLocalLinkage()) G.setDSOLocal(false);
  }
  for (GlobalVariable &V : M.globals())
    if (!V.isThreadLocal() && !V.hasSection() && !V.getCodeModel() && isGreat(V, M.getDataLayout()))
      V.setCodeModel(CodeModel::Large);
}

// Hands each definition that others can see and each reference, or each definition with `Locals`, to `Sink`, with size and
// alignment where it is tentative; answers the bits of the module. Bodies are looked at as far as they are read.
unsigned uruk_llvm_symbols(LLVMModuleRef Handle, bool Locals,
                           void (*Sink)(void *, const char *, size_t, unsigned, uint64_t, uint64_t), void *Data) {
  unsigned Bits = 0;
  const DataLayout &Layout = unwrap(Handle)->getDataLayout();
  StringMap<AssemblySymbol> OfBodies;
  if (!Locals) {
    AssemblyNames Names = namesOfBodies(*unwrap(Handle));
    unsigned OfCode = Names.sharesSections() ? +SharesSections : 0;
    for (const auto &Section : Names.Sections) OfCode |= sectionBits(Section.first());
    Bits |= OfCode & SharesSections ? OfCode | CodeSharesSections : OfCode;
    OfBodies = std::move(Names.Symbols);
  }
  for (GlobalValue &G : unwrap(Handle)->global_values()) {
    auto *Object = dyn_cast<GlobalObject>(&G);
    if (isDeclaredEndOfSections(G)) Bits |= SharesSections;
    if (Object && !Object->isDeclaration() && Object->hasSection()) Bits |= sectionBits(Object->getSection());
    if (Object && !Object->isDeclaration()) Bits |= bitsOfAttributes(*Object);
    if (auto *V = dyn_cast<GlobalVariable>(&G); V && V->hasAppendingLinkage() && V->hasInitializer()) {
      auto *List = dyn_cast<ArrayType>(V->getValueType());
      if (List && List->getNumElements() && V->getName() == "llvm.global_ctors") Bits |= Initializers;
      if (List && List->getNumElements() && V->getName() == "llvm.global_dtors") Bits |= Finalizers;
    }
    if (G.isThreadLocal() && !G.isDeclarationForLinker()) Bits |= ThreadLocals;
    StringRef Name = G.getName();
    Name.consume_front("\1");
    if (auto Found = OfBodies.find(Name); Found != OfBodies.end() && Found->second.IsDefined) {
      if (G.isDeclarationForLinker()) continue;
      OfBodies.erase(Found);
    }
    if (!Locals && refersToOthers(G))
      Sink(Data, Name.data(), Name.size(), Undefined | (G.hasExternalWeakLinkage() ? +Weak : 0), 0, 0);
    if (!(Locals ? defines(G) : definesForOthers(G))) continue;
    uint64_t Bytes = 0, Alignment = 0;
    if (auto *V = dyn_cast<GlobalVariable>(&G); V && V->hasCommonLinkage()) {
      Bytes = Layout.getTypeAllocSize(V->getValueType());
      Alignment = Layout.getPreferredAlign(V).value();
    }
    Sink(Data, Name.data(), Name.size(), symbolBits(G), Bytes, Alignment);
  }
  std::vector<StringRef> Names;
  for (auto &Symbol : OfBodies)
    if (Symbol.second.IsDefined && Symbol.second.IsGlobal) Names.push_back(Symbol.first());
  llvm::sort(Names);
  for (StringRef Name : Names) Sink(Data, Name.data(), Name.size(), symbolBits(OfBodies[Name]), 0, 0);
  return Bits;
}

// Makes a linkonce definition weak, so that optimization keeps what was promised to others.
void uruk_llvm_keep(LLVMModuleRef Handle, const char *Name, size_t Size) {
  GlobalValue *G = find(Handle, Name, Size);
  if (G && G->hasLinkOnceLinkage())
    G->setLinkage(G->hasLinkOnceODRLinkage() ? GlobalValue::WeakODRLinkage : GlobalValue::WeakAnyLinkage);
}

// Gives up the definition of `Name` in favour of another module's; returns whether there was one.
bool uruk_llvm_discard(LLVMModuleRef Handle, const char *Name, size_t Size) {
  GlobalValue *G = find(Handle, Name, Size);
  if (!G || !definesForOthers(*G)) return false;
  auto *Object = dyn_cast<GlobalObject>(G);
  bool Same = G->hasLinkOnceODRLinkage() || G->hasWeakODRLinkage();
  auto *Variable = dyn_cast<GlobalVariable>(G);
  if (!Object || isa<GlobalIFunc>(G)) { // An alias or ifunc is nothing but its name.
    G->replaceAllUsesWith(declareInPlaceOf(*G));
    G->eraseFromParent();
  } else if (carriesAliases(*Object)) { // The body stays for its other names; this one refers to outside.
    GlobalValue *Declaration = declareInPlaceOf(*G);
    G->replaceUsesWithIf(Declaration, [](Use &U) { return !isa<GlobalAlias, GlobalIFunc>(U.getUser()); });
    G->setName(Declaration->getName() + ".discarded");
    G->setLinkage(GlobalValue::InternalLinkage);
  } else {
    Object->setComdat(nullptr); // A declaration has none.
    if (Same && (!Variable || Variable->isConstant())) // The body may still inform optimization.
      G->setLinkage(GlobalValue::AvailableExternallyLinkage);
    else if (auto *F = dyn_cast<Function>(G))
      F->deleteBody();
    else
      Variable->setInitializer(nullptr), Variable->setLinkage(GlobalValue::ExternalLinkage);
    if (G->hasDefaultVisibility()) G->setDSOLocal(false);
  }
  return true;
}

// Takes the texts of a named metadata off a module. `Hear` is called with null before those of each node.
void uruk_llvm_take_attached(LLVMModuleRef Handle, const char *Name, size_t Size,
                             void (*Hear)(void *Data, const char *Text, size_t Size), void *Data) {
  Module &M = *unwrap(Handle);
  NamedMDNode *Named = M.getNamedMetadata(StringRef(Name, Size));
  if (!Named) return;
  for (const MDNode *Node : Named->operands()) {
    Hear(Data, nullptr, 0);
    for (const MDOperand &Operand : Node->operands())
      if (auto *Text = dyn_cast_or_null<MDString>(Operand.get()))
        Hear(Data, Text->getString().data(), Text->getLength());
  }
  M.eraseNamedMetadata(Named);
}

// Says by which LLVM the bitcode was made and which one this is; null if they are the same. `IsNewer` becomes whether that one is newer.
char *uruk_llvm_foreign_producer(const char *Bytes, size_t Size, bool *IsNewer) {
  Expected<std::string> Producer = getBitcodeProducerString(MemoryBufferRef(StringRef(Bytes, Size), "bitcode"));
  if (!Producer) return consumeError(Producer.takeError()), nullptr;
  StringRef Version = *Producer;
  bool IsLlvms = Version.consume_front("LLVM");
  if (Version.empty() || (IsLlvms && Version == LLVM_VERSION_STRING)) return nullptr;
  unsigned Major = 0;
  *IsNewer = IsLlvms && !Version.consumeInteger(10, Major) && Major > LLVM_VERSION_MAJOR;
  Version = StringRef(*Producer);
  StringRef Whose = Version.consume_front("LLVM") ? "LLVM " : "";
  return LLVMCreateMessage(("made by " + Whose + Version + "; this is " + LLVM_VERSION_STRING).str().c_str());
}

} // extern "C"
