// Takes one part out of the bitcode of a module that was divided. Called from `ffi.rs` alone.

#include "parts.h"
#include <llvm-c/Core.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>
#include <set>

using namespace llvm;

namespace {

Error takePart(Module &M, ArrayRef<uint32_t> PartOf, ArrayRef<uint32_t> Imports, uint32_t Part) {
  std::vector<GlobalValue *> Values = valuesInOrder(M);
  if (Values.size() != PartOf.size()) return createStringError("the bitcode has other values than the module");
  std::set<const GlobalValue *> Imported, Own;
  for (size_t I = 0; I + 1 < Imports.size(); I += 2)
    if (Imports[I + 1] == Part) Imported.insert(Values[Imports[I]]);
  for (size_t I = 0; I != Values.size(); ++I)
    if (PartOf[I] == Part) Own.insert(Values[I]);
  // Reading a block's address leads to the function with the block, in this part or another. It must still be there.
  auto isRead = [&](GlobalValue *G) {
    return Own.count(G) || Imported.count(G) || hasAddressesTaken(*cast<Function>(G));
  };
  for (GlobalValue *G : Values)
    if (isa<Function>(G) && isRead(G))
      if (Error Failed = G->materialize()) return Failed;
  GlobalVariable *Annotations = M.getGlobalVariable("llvm.global.annotations");
  for (GlobalValue *&G : Values)
    if (isUsedList(*G) || G == Annotations) G = nullptr;
  for (StringRef List : {"llvm.used", "llvm.compiler.used"}) takeUsed(M, List, Own);
  if (Annotations) Annotations->eraseFromParent(); // No code is made of them.
  auto leave = [&](size_t I) {
    GlobalValue *G = Values[I];
    if (!G || PartOf[I] == Part) return;
    if (Imported.count(G)) {
      cast<Function>(G)->setComdat(nullptr);
      G->setLinkage(GlobalValue::AvailableExternallyLinkage);
    } else if (G->hasAppendingLinkage()) {
      G->eraseFromParent();
    } else if (PartOf[I] != Everywhere || G->hasAvailableExternallyLinkage()) {
      declare(*G);
    }
  };
  // Aliases first: what they stand for is seen by its definition.
  for (size_t I = 0; I != Values.size(); ++I)
    if (Values[I] && isa<GlobalAlias>(Values[I])) leave(I), Values[I] = PartOf[I] == Part ? Values[I] : nullptr;
  for (size_t I = 0; I != Values.size(); ++I) leave(I);
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
