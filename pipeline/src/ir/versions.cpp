// Makes the code of a module for other processors than its own. Called from `ffi.rs` alone.
//
// The variables of a module exist once, with its code for the base. So a version of it has functions alone, each under a name of its own:
// `uruk.local.` before the function's and the target's behind it. Calls between functions of one version are direct. All other uses of a
// function are of the name that it has for everybody: `link/versions.rs` leads that to the version that is chosen.

#include "parts.h"
#include <llvm-c/Core.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/X86TargetParser.h>

using namespace llvm;

namespace {

// Constants up to this size are known to versions.
const uint64_t KnownBytesMax = 64 << 10;
// The width of vectors that a function's callers may pass in a register, as it was written.
const char *const VectorBits = "uruk-vector-bits";
// A constant of which a version may have a copy: no code can tell.
bool isCopied(const GlobalValue &G) {
  auto *V = dyn_cast<GlobalVariable>(&G);
  return V && V->hasLocalLinkage() && V->isConstant() && V->hasGlobalUnnamedAddr() && V->hasInitializer() &&
         isa<ConstantData>(V->getInitializer()) && !V->hasSection() && !V->isThreadLocal();
}

// The widest vector that a value of this type consists of, in bits.
unsigned widest(Type *T) {
  if (auto *V = dyn_cast<FixedVectorType>(T)) {
    unsigned Element = V->getElementType()->isPointerTy() ? 64 : V->getScalarSizeInBits();
    return Element * V->getNumElements();
  }
  unsigned Bits = 0;
  for (Type *Inner : T->subtypes()) Bits = std::max(Bits, widest(Inner));
  return Bits;
}

// A function that passes vectors in registers that not all processors have, and that the module alone calls: each version has its own, which
// others never call.
bool isOfVersion(const Function &F) {
  return F.hasLocalLinkage() && !F.hasSection() && widest(F.getFunctionType()) > 128 && all_of(F.uses(), isCalleeUse);
}

// A variable or function that nothing but a list of what is to be kept refers to: no version does.
bool isOnlyListed(const GlobalValue &G) {
  auto IsList = [](const User *U) { return isa<GlobalVariable>(U) && isUsedList(*cast<GlobalVariable>(U)); };
  return G.hasName() && !G.use_empty() && all_of(G.users(), [&](const User *U) { return isa<ConstantArray>(U) && all_of(U->users(), IsList); });
}

// Whether code takes its address, or calls it by its name because another definition may take its place.
bool isReferredTo(const Function &F) {
  return F.isInterposable() || any_of(F.uses(), [](const Use &U) { return !isCalleeUse(U); });
}

unsigned vectorBits(StringRef Features, unsigned Known) {
  if (Features.contains("+avx512f")) return std::max(Known, 512u);
  if (Features.contains("+avx")) return std::max(Known, 256u);
  return Known;
}

// A table of addresses of blocks belongs to the code with the blocks, and there is one.
bool hasBlocksInData(const Function &F) {
  for (const BasicBlock &B : F)
    if (B.hasAddressTaken())
      for (const User *U : BlockAddress::lookup(&B)->users())
        if (!isa<Instruction>(U)) return true;
  return false;
}

void setProcessor(Function &F, StringRef Cpu, StringRef Features, unsigned BaseBits) {
  std::string Own = F.getFnAttribute("target-features").getValueAsString().str();
  F.addFnAttr(VectorBits, std::to_string(vectorBits(Own, BaseBits)));
  F.addFnAttr("target-cpu", Cpu);
  F.addFnAttr("target-features", Own.empty() ? Features.str() : (Features + "," + Own).str());
}

void makeVersion(Function &F, StringRef Target) {
  // No function of the base has such a name.
  if (isOfVersion(F)) return F.setName(F.getName() + ".own@" + Target);
  std::string Name = F.getName().str();
  bool ByName = F.isInterposable();
  auto *Everybodys = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, F.getAddressSpace(), "", F.getParent());
  Everybodys->copyAttributesFrom(&F);
  Everybodys->setPersonalityFn(nullptr);
  Everybodys->setComdat(nullptr);
  // Of a mere name like `strdup` the optimizer would believe that it is the library's.
  Everybodys->addFnAttr(Attribute::NoBuiltin);
  if (F.hasDefaultVisibility()) Everybodys->setDSOLocal(false);
  F.replaceUsesWithIf(Everybodys, [&](Use &U) { return !isa<BlockAddress>(U.getUser()) && (ByName || !isCalleeUse(U)); });
  Everybodys->takeName(&F);
  F.setName((StringRef(Name).starts_with(LocalPrefix) ? Name : LocalPrefix + Name) + "@" + Target);
  F.setComdat(nullptr);
  F.setLinkage(GlobalValue::ExternalLinkage);
  F.setVisibility(GlobalValue::HiddenVisibility);
  F.setDSOLocal(true);
  if (Everybodys->use_empty()) Everybodys->eraseFromParent();
}

void leaveVariable(GlobalVariable &V) {
  if (V.isDeclaration() || V.hasAvailableExternallyLinkage() || isCopied(V)) return;
  bool IsKnown = V.isConstant() && V.hasDefinitiveInitializer() && isa<ConstantData>(V.getInitializer()) && !V.isThreadLocal() &&
                 V.getDataLayout().getTypeAllocSize(V.getValueType()) <= KnownBytesMax;
  if (!IsKnown) return declare(V);
  V.setComdat(nullptr);
  V.setSection("");
  V.setLinkage(GlobalValue::AvailableExternallyLinkage);
}

std::optional<std::string> wideType(FunctionType *T, unsigned Theirs, unsigned Ours) {
  for (Type *Passed : T->subtypes()) {
    unsigned Bits = widest(Passed);
    if (Bits <= 128 || std::min(Bits, Theirs) == std::min(Bits, Ours)) continue;
    std::string Text;
    raw_string_ostream(Text) << *Passed;
    return Text;
  }
  return std::nullopt;
}

// The widest vectors that a function of a version, or one that it refers to, passes in a register: what the target has, or what it asks for itself.
unsigned bitsThere(const Function &F, unsigned TargetBits) {
  return vectorBits(F.getFnAttribute("target-features").getValueAsString(), TargetBits);
}

// The same as it was written.
unsigned bitsOf(const Function &F, unsigned BaseBits) {
  unsigned Bits = 0;
  StringRef Noted = F.getFnAttribute(VectorBits).getValueAsString();
  if (!Noted.empty() && !Noted.getAsInteger(10, Bits)) return Bits;
  return vectorBits(F.getFnAttribute("target-features").getValueAsString(), BaseBits);
}

} // namespace

extern "C" {

// Gives all that versions of the module refer to a name that other objects of it can use. Answers whether it can have versions: not if it has
// assembly, whose names no version could refer to, or a name of parts, nor with an ifunc, whose resolver may be asked before there is a choice.
bool uruk_llvm_publish_all(LLVMModuleRef Handle) {
  Module &M = *unwrap(Handle);
  if (!M.getModuleInlineAsm().empty() || !M.ifunc_empty() || hasNameOfParts(M)) return false;
  std::vector<GlobalValue *> Values = valuesInOrder(M);
  for (size_t I = 0; I != Values.size(); ++I) {
    GlobalValue &G = *Values[I];
    if (G.isDeclaration() || G.hasAppendingLinkage() || G.hasAvailableExternallyLinkage() || G.getName().starts_with("llvm.") || isCopied(G))
      continue;
    auto *F = dyn_cast<Function>(&G);
    if ((F && isOfVersion(*F)) || (G.hasLocalLinkage() && isOnlyListed(G))) continue;
    if (G.hasLocalLinkage() || !G.hasName()) {
      G.setName(LocalPrefix + (G.hasName() ? G.getName().str() : std::to_string(I)));
      G.setLinkage(GlobalValue::ExternalLinkage);
      G.setVisibility(GlobalValue::HiddenVisibility);
      G.setDSOLocal(true);
    } else if (G.hasLinkOnceLinkage() && (!F || F->hasSection() || isReferredTo(*F))) {
      G.setLinkage(G.hasLinkOnceODRLinkage() ? GlobalValue::WeakODRLinkage : GlobalValue::WeakAnyLinkage);
    }
  }
  return true;
}

// Makes a copy of a published module its version for a processor. `Bits` are the widths of vectors in registers: the base's, and the target's.
void uruk_llvm_make_version(LLVMModuleRef Handle, const char *Base, const char *Target, const char *Cpu, const char *Features,
                            unsigned BaseBits, unsigned TargetBits) {
  Module &M = *unwrap(Handle);
  StripDebugInfo(M);
  if (NamedMDNode *Programs = M.getNamedMetadata(VersionFacts)) M.eraseNamedMetadata(Programs);
  for (StringRef Fact : {StringRef(Base), StringRef(Target), StringRef(std::to_string(BaseBits)), StringRef(std::to_string(TargetBits))})
    M.getOrInsertNamedMetadata(VersionFacts)->addOperand(MDNode::get(M.getContext(), MDString::get(M.getContext(), Fact)));
  std::vector<GlobalValue *> Values = valuesInOrder(M);
  // Aliases first: what they stand for is seen by its definition.
  for (GlobalValue *&G : Values)
    if (isa<GlobalAlias, GlobalIFunc>(G)) declareInPlaceOf(*G), G = nullptr;
  for (GlobalValue *&G : Values)
    if (G && G->hasAppendingLinkage()) cast<GlobalVariable>(G)->eraseFromParent(), G = nullptr;
  std::vector<Function *> Functions;
  for (GlobalValue *G : Values) {
    auto *F = dyn_cast_or_null<Function>(G);
    if (!F || F->isDeclaration()) continue;
    // Its section may be found by its bounds, and all of its code has to be there.
    if (hasBlocksInData(*F) || F->hasSection()) declare(*F);
    else Functions.push_back(F);
  }
  for (GlobalValue *G : Values)
    if (auto *V = dyn_cast_or_null<GlobalVariable>(G)) leaveVariable(*V);
  for (Function *F : Functions) {
    setProcessor(*F, Cpu, Features, BaseBits);
    if (!F->hasAvailableExternallyLinkage()) makeVersion(*F, Target);
  }
  dropUnused(M);
}

// A sentence about the first function of an optimized version that passes a vector in other registers than the base does; null if there is none,
// and for other modules.
char *uruk_llvm_wide_signature(LLVMModuleRef Handle) {
  Module &M = *unwrap(Handle);
  const NamedMDNode *Facts = versionFacts(M);
  if (!Facts) return nullptr;
  auto Fact = [&](unsigned I) { return cast<MDString>(Facts->getOperand(I)->getOperand(0))->getString(); };
  unsigned BaseBits = 0, TargetBits = 0;
  Fact(2).getAsInteger(10, BaseBits);
  Fact(3).getAsInteger(10, TargetBits);
  auto Answer = [&](StringRef Name, const std::string &Type) {
    Name.consume_front(LocalPrefix);
    return LLVMCreateMessage(("`" + Name.take_front(Name.rfind('@')) + "` passes " + Type + ", which " + Fact(0) + " and " + Fact(1) +
                              " do by different registers; pass a pointer")
                                 .str()
                                 .c_str());
  };
  for (const Function &F : M) {
    if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.hasLocalLinkage()) continue;
    unsigned Bits = bitsThere(F, TargetBits);
    if (auto Wide = wideType(F.getFunctionType(), bitsOf(F, BaseBits), Bits)) return Answer(F.getName(), *Wide);
    for (const Instruction &I : instructions(F)) {
      auto *Call = dyn_cast<CallBase>(&I);
      if (!Call || Call->isInlineAsm() || isa<IntrinsicInst>(Call)) continue;
      // Functions of the version, and those that it alone calls, pass vectors as their callers do.
      const Function *Callee = Call->getCalledFunction();
      if (Callee && !Callee->isDeclaration()) continue;
      if (auto Wide = wideType(Call->getFunctionType(), bitsOf(Callee ? *Callee : F, BaseBits), Bits))
        return Answer((Callee ? *Callee : F).getName(), *Wide);
    }
  }
  return nullptr;
}

// Has the functions of a module use what this processor has. Not if one passes a vector in registers that depend on that.
void uruk_llvm_retarget(LLVMModuleRef Handle, const char *Cpu, const char *Features) {
  Module &M = *unwrap(Handle);
  auto IsWideCall = [](const Instruction &I) {
    auto *Call = dyn_cast<CallBase>(&I);
    return Call && !isa<IntrinsicInst>(Call) && widest(Call->getFunctionType()) > 128;
  };
  for (const Function &F : M)
    if (!F.isIntrinsic() && (widest(F.getFunctionType()) > 128 || any_of(instructions(F), IsWideCall))) return;
  for (Function &F : M) {
    if (F.isDeclaration()) continue;
    std::string Own = F.getFnAttribute("target-features").getValueAsString().str();
    F.addFnAttr("target-cpu", Cpu);
    F.addFnAttr("target-features", Own.empty() ? Features : (Features + Twine(",") + Own).str());
    F.removeFnAttr("tune-cpu");
  }
}

// Tells `Sink` of the instruction sets that all functions of a module may use, each as `+name`, if it was compiled for a processor beyond the first
// of all: flags and attributes that ask for instruction sets name none.
void uruk_llvm_level(LLVMModuleRef Handle, void (*Sink)(void *, const char *, size_t), void *Data) {
  Module &M = *unwrap(Handle);
  // Functions of a version have its processor.
  if (M.getTargetTriple().getArch() != Triple::x86_64 || M.getNamedMetadata(VersionFacts)) return;
  const Function *First = nullptr;
  SmallVector<StringRef, 64> Common;
  for (const Function &F : M) {
    if (F.isDeclaration()) continue;
    StringRef Cpu = F.getFnAttribute("target-cpu").getValueAsString();
    if (Cpu.empty() || Cpu == "x86-64" || Cpu == "generic") return;
    StringRef Features = F.getFnAttribute("target-features").getValueAsString();
    if (!First) {
      Features.split(Common, ',', -1, /*KeepEmpty=*/false);
    } else if (F.getFnAttribute("target-cpu") != First->getFnAttribute("target-cpu")) {
      return;
    } else if (F.getFnAttribute("target-features") != First->getFnAttribute("target-features")) {
      SmallVector<StringRef, 64> Own;
      Features.split(Own, ',', -1, /*KeepEmpty=*/false);
      erase_if(Common, [&](StringRef Name) { return !is_contained(Own, Name); });
    }
    if (!First) First = &F;
  }
  for (StringRef Name : Common)
    if (Name.starts_with("+")) Sink(Data, Name.data(), Name.size());
}

// Has the object of a module say this in its section of comments.
void uruk_llvm_comment(LLVMModuleRef Handle, const char *Text) {
  Module &M = *unwrap(Handle);
  M.getOrInsertNamedMetadata("llvm.ident")->addOperand(MDNode::get(M.getContext(), MDString::get(M.getContext(), Text)));
}

// Tells `Sink` of the instruction sets of a processor with these features added and taken away, those that imply others with them. Answers
// whether LLVM knows the processor.
bool uruk_llvm_processor(const char *Cpu, const char *Features, void (*Sink)(void *, const char *, size_t), void *Data) {
  if (X86::parseArchX86(Cpu, /*Only64Bit=*/true) == X86::CK_None) return false;
  SmallVector<StringRef, 64> Own;
  X86::getFeaturesForCPU(Cpu, Own);
  StringMap<bool> Enabled;
  for (StringRef Name : Own) Enabled[Name] = true;
  SmallVector<StringRef, 8> Changes;
  StringRef(Features).split(Changes, ',', -1, /*KeepEmpty=*/false);
  for (StringRef Change : Changes) {
    bool IsAdded = Change.front() == '+';
    X86::updateImpliedFeatures(Change.drop_front(), IsAdded, Enabled);
    Enabled[Change.drop_front()] = IsAdded;
  }
  for (const auto &Entry : Enabled)
    if (Entry.second) Sink(Data, Entry.first().data(), Entry.first().size());
  return true;
}

} // extern "C"
