// Shared by `divide.cpp`, `part.cpp`, `functions.cpp` and `versions.cpp`.

#pragma once

#include "assembly.h"
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>
#include <set>
#include <vector>

using namespace llvm;

namespace {

// The part of what each part has for itself, if it needs it.
const uint32_t Everywhere = ~0u;

// Names of what is local to a module and needed in several parts of it begin with this; `link/parts.rs` makes them local again.
const char *const LocalPrefix = "uruk.local.";

// Of a version: the names of base and target, and their widths of vectors.
const char *const VersionFacts = "uruk.version";

// Whether the module itself has a name that the names of parts begin with. It has no parts then.
inline bool hasNameOfParts(const Module &M) {
  return any_of(M.global_values(), [](const GlobalValue &G) {
    StringRef Name = G.getName();
    Name.consume_front("\1");
    return Name.starts_with(LocalPrefix);
  });
}

// The facts of a version; null of any other module, also of one that has such a name for facts of its own.
inline const NamedMDNode *versionFacts(const Module &M) {
  const NamedMDNode *Facts = M.getNamedMetadata(VersionFacts);
  auto IsText = [](const MDNode *Fact) { return Fact->getNumOperands() == 1 && isa_and_nonnull<MDString>(Fact->getOperand(0)); };
  return Facts && Facts->getNumOperands() == 4 && all_of(Facts->operands(), IsText) ? Facts : nullptr;
}

// The order of bitcode, which the parts are read from.
inline std::vector<GlobalValue *> valuesInOrder(Module &M) {
  std::vector<GlobalValue *> Values;
  for (Function &F : M) Values.push_back(&F);
  for (GlobalVariable &V : M.globals()) Values.push_back(&V);
  for (GlobalAlias &A : M.aliases()) Values.push_back(&A);
  for (GlobalIFunc &I : M.ifuncs()) Values.push_back(&I);
  return Values;
}

// Whether a use of a function calls it as what it is.
inline bool isCalleeUse(const Use &U) {
  auto *Call = dyn_cast<CallBase>(U.getUser());
  return Call && Call->isCallee(&U) && Call->getFunctionType() == cast<Function>(U.get())->getFunctionType();
}

// Lists of what optimization must keep: each part has its own.
inline bool isUsedList(const GlobalValue &G) {
  return G.getName() == "llvm.used" || G.getName() == "llvm.compiler.used";
}

// Whether the name of an alias means its aliasee, because no other definition can take the place of either; LLVM knows no more than that.
// Otherwise only their names tell the two apart.
inline bool isItsAliasee(const GlobalAlias &A) {
  const GlobalObject *Base = A.getAliaseeObject();
  if (!Base || A.isInterposable() || Base->isWeakForLinker()) return false;
  // The address of a thread-local variable is computed from the variable alone.
  return !A.isThreadLocal() || isa<GlobalValue>(A.getAliasee());
}

// Whether the optimizer takes an alias, once it is a mere declaration, for a variable of its own.
inline bool isLostAsDeclaration(const GlobalAlias &A) { return !A.getValueType()->isFunctionTy() && !isItsAliasee(A); }

// Code generation makes a table of all that call such a function, and gives it a name that is the object's alone.
inline bool isTabulated(const Function &Called) {
  return is_contained({Intrinsic::experimental_stackmap, Intrinsic::experimental_patchpoint, Intrinsic::experimental_patchpoint_void,
                       Intrinsic::experimental_gc_statepoint},
                      Called.getIntrinsicID());
}
inline bool isNameOfTable(StringRef Name) { return Name == "__LLVM_StackMaps" || Name == "__LLVM_FaultMaps"; }

// Whether the address of one of its blocks is a constant somewhere. Of a function that was not read this is not known.
inline bool hasAddressesTaken(const Function &F) {
  return any_of(F, [](const BasicBlock &B) { return B.hasAddressTaken(); });
}

// Leaves it open whether an address is another one's, for names that others may define.
inline void mayBeAnother(GlobalValue &Declaration) {
  if (!Declaration.isThreadLocal()) Declaration.setLinkage(GlobalValue::ExternalWeakLinkage);
}

// The functions below change a part that is being taken out.

inline void declareInPlaceOf(GlobalValue &G) {
  Module &M = *G.getParent();
  auto *A = dyn_cast<GlobalAlias>(&G);
  if (A && isItsAliasee(*A)) {
    A->replaceAllUsesWith(A->getAliasee());
    return A->eraseFromParent();
  }
  GlobalValue *Declaration;
  if (auto *Type = dyn_cast<FunctionType>(G.getValueType()))
    Declaration = Function::Create(Type, GlobalValue::ExternalLinkage, G.getAddressSpace(), "", &M);
  else
    Declaration = new GlobalVariable(M, G.getValueType(), false, GlobalValue::ExternalLinkage, nullptr, "", nullptr,
                                     G.getThreadLocalMode(), G.getAddressSpace());
  if (A) mayBeAnother(*Declaration);
  Declaration->setVisibility(G.getVisibility());
  Declaration->setDSOLocal(G.isDSOLocal());
  Declaration->takeName(&G);
  G.replaceAllUsesWith(Declaration);
  G.eraseFromParent();
}

// Leaves the name and nothing else.
inline void declare(GlobalValue &G) {
  if (G.isDeclaration()) return;
  if (isa<GlobalAlias, GlobalIFunc>(G)) return declareInPlaceOf(G);
  auto &Object = cast<GlobalObject>(G);
  bool MayBeAnother = G.isInterposable();
  if (auto *F = dyn_cast<Function>(&Object)) {
    F->deleteBody();
    // Of a mere name like `strdup` the optimizer would believe that it is the library's.
    F->addFnAttr(Attribute::NoBuiltin);
  } else {
    cast<GlobalVariable>(Object).setInitializer(nullptr);
  }
  // A name that was local is not used here.
  Object.setComdat(nullptr);
  Object.setLinkage(GlobalValue::ExternalLinkage);
  if (MayBeAnother) mayBeAnother(Object);
  Object.clearMetadata();
}

// Leaves what this part has in a list of what optimization must keep.
inline void takeUsed(Module &M, StringRef List, const std::set<const GlobalValue *> &Own) {
  GlobalVariable *V = M.getGlobalVariable(List);
  if (!V || !V->hasInitializer()) return;
  SmallVector<GlobalValue *, 16> Kept;
  for (Value *Element : V->getInitializer()->operand_values())
    if (auto *G = dyn_cast<GlobalValue>(Element->stripPointerCasts()); G && Own.count(G)) Kept.push_back(G);
  V->eraseFromParent();
  if (Kept.empty()) return;
  if (List == "llvm.used") appendToUsed(M, Kept);
  else appendToCompilerUsed(M, Kept);
}

// Erases what nothing of this part uses. Constants of its own may go with what used them.
inline void dropUnused(Module &M) {
  for (bool Changed = true; Changed;) {
    Changed = false;
    auto drop = [&](GlobalObject &G) {
      G.removeDeadConstantUsers();
      if (!G.use_empty() || !(G.isDeclaration() || G.hasPrivateLinkage()) || G.hasSection()) return;
      G.eraseFromParent();
      Changed = true;
    };
    for (Function &F : make_early_inc_range(M)) drop(F);
    for (GlobalVariable &V : make_early_inc_range(M.globals())) drop(V);
  }
}

} // namespace
