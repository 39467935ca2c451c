// Takes one part out of the bitcode of a module that was divided. Called from `ffi.rs` alone.

#include "parts.h"
#include <llvm-c/Core.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>
#include <set>

using namespace llvm;

namespace {

void declareInPlaceOf(GlobalValue &G) {
  Module &M = *G.getParent();
  GlobalValue *Declaration;
  if (auto *Type = dyn_cast<FunctionType>(G.getValueType()))
    Declaration = Function::Create(Type, GlobalValue::ExternalLinkage, G.getAddressSpace(), "", &M);
  else
    Declaration = new GlobalVariable(M, G.getValueType(), false, GlobalValue::ExternalLinkage, nullptr, "", nullptr,
                                     G.getThreadLocalMode(), G.getAddressSpace());
  Declaration->setVisibility(G.getVisibility());
  Declaration->setDSOLocal(G.isDSOLocal());
  Declaration->takeName(&G);
  G.replaceAllUsesWith(Declaration);
  G.eraseFromParent();
}

// Leaves the name and nothing else.
void declare(GlobalValue &G) {
  if (G.isDeclaration()) return;
  if (isa<GlobalAlias, GlobalIFunc>(G)) return declareInPlaceOf(G);
  auto &Object = cast<GlobalObject>(G);
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
  Object.clearMetadata();
}

// Leaves what this part has in a list of what optimization must keep.
void takeUsed(Module &M, StringRef List, const std::set<const GlobalValue *> &Own) {
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
void dropUnused(Module &M) {
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

Error takePart(Module &M, ArrayRef<uint32_t> PartOf, ArrayRef<uint32_t> Imports, uint32_t Part) {
  std::vector<GlobalValue *> Values = valuesInOrder(M);
  if (Values.size() != PartOf.size()) return createStringError("the bitcode has other values than the module");
  std::set<const GlobalValue *> Imported, Own;
  for (size_t I = 0; I + 1 < Imports.size(); I += 2)
    if (Imports[I + 1] == Part) Imported.insert(Values[Imports[I]]);
  for (size_t I = 0; I != Values.size(); ++I)
    if (PartOf[I] == Part) Own.insert(Values[I]);
  // Reading a block's address leads to the function with the block, whoever's it is. It must still be there.
  auto isRead = [&](GlobalValue *G) {
    return Own.count(G) || Imported.count(G) || any_of(G->users(), [](User *U) { return isa<BlockAddress>(U); });
  };
  for (GlobalValue *G : Values)
    if (isa<Function>(G) && isRead(G))
      if (Error Failed = G->materialize()) return Failed;
  GlobalVariable *Annotations = M.getGlobalVariable("llvm.global.annotations");
  for (GlobalValue *&G : Values)
    if (isUsedList(*G) || G == Annotations) G = nullptr;
  for (StringRef List : {"llvm.used", "llvm.compiler.used"}) takeUsed(M, List, Own);
  if (Annotations) Annotations->eraseFromParent(); // No code is made of them.
  for (size_t I = 0; I != Values.size(); ++I) {
    GlobalValue *G = Values[I];
    if (!G || PartOf[I] == Part) continue;
    if (Imported.count(G)) {
      cast<Function>(G)->setComdat(nullptr);
      G->setLinkage(GlobalValue::AvailableExternallyLinkage);
    } else if (G->hasAppendingLinkage()) {
      G->eraseFromParent();
    } else if (PartOf[I] != Everywhere || G->hasAvailableExternallyLinkage()) {
      declare(*G);
    }
  }
  if (Error Failed = M.materializeAll()) return Failed;
  if (Part != 0) M.setModuleInlineAsm("");
  dropUnused(M);
  return Error::success();
}

} // namespace

extern "C" {

// Reads part `Part` of a module that `uruk_llvm_divide` has divided, from its bitcode: functions of other parts are not read. Takes
// over the buffer. Answers null with LLVM's message if the bitcode cannot be read.
LLVMModuleRef uruk_llvm_read_part(LLVMContextRef Context, LLVMMemoryBufferRef Bitcode, const uint32_t *PartOf, size_t Values,
                                  const uint32_t *Imports, size_t Imported, uint32_t Part, char **Message) {
  std::unique_ptr<MemoryBuffer> Buffer(unwrap(Bitcode));
  Expected<std::unique_ptr<Module>> M = getOwningLazyBitcodeModule(std::move(Buffer), *unwrap(Context));
  Error Failed = M ? takePart(**M, {PartOf, Values}, {Imports, Imported}, Part) : M.takeError();
  if (Failed) {
    *Message = LLVMCreateMessage(toString(std::move(Failed)).c_str());
    return nullptr;
  }
  return wrap(M->release());
}

} // extern "C"
