// Type tests, which compilers leave to a step that sees all modules of a program (`-flto`). Called from `ffi.rs` alone.
//
// Code generation takes each test for passed. That is right where the result is only assumed, as for devirtualization. A check that code
// relies on would be gone.

#include <llvm-c/Core.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

using namespace llvm;

namespace {

const Intrinsic::ID CheckedLoads[] = {Intrinsic::type_checked_load, Intrinsic::type_checked_load_relative};

using Values = SmallPtrSet<const Value *, 8>;

// Whether a test comes to nothing but assumptions. Then it may as well be true.
bool isAssumed(const Value &Test, Values &Seen) {
  return all_of(Test.uses(), [&](const Use &U) {
    const User *By = U.getUser();
    if (isa<AssumeInst>(By)) return true;
    auto *Operation = dyn_cast<BinaryOperator>(By);
    bool IsPassedOn = Operation ? is_contained({Instruction::And, Instruction::Or}, Operation->getOpcode())
                                : isa<PHINode, FreezeInst, SelectInst>(By);
    return IsPassedOn && (!Seen.insert(By).second || isAssumed(*By, Seen));
  });
}

bool isAssumed(const Value &Test) {
  Values Seen;
  return isAssumed(Test, Seen);
}

// Of the pair that such a load gives, the second says whether the test was passed.
bool isOnlyLoaded(const Value &Pair) {
  return all_of(Pair.users(), [](const User *U) {
    auto *Part = dyn_cast<ExtractValueInst>(U);
    return Part && Part->getNumIndices() == 1 && (Part->getIndices()[0] == 0 || isAssumed(*Part));
  });
}

SmallVector<CallInst *, 16> callsOf(const Module &M, Intrinsic::ID Called) {
  SmallVector<CallInst *, 16> Calls;
  if (const Function *F = Intrinsic::getDeclarationIfExists(&M, Called))
    for (const User *U : F->users())
      if (auto *Call = dyn_cast<CallInst>(U)) Calls.push_back(const_cast<CallInst *>(Call));
  return Calls;
}

// The function in which code relies on a test, if there is one.
const Function *relyingOnTest(const Module &M) {
  for (const CallInst *Test : callsOf(M, Intrinsic::type_test))
    if (!isAssumed(*Test)) return Test->getFunction();
  for (Intrinsic::ID Load : CheckedLoads)
    for (const CallInst *Checked : callsOf(M, Load))
      if (!isOnlyLoaded(*Checked)) return Checked->getFunction();
  return nullptr;
}

void loadUnchecked(CallInst &Load) {
  IRBuilder<> Builder(&Load);
  Value *Table = Load.getArgOperand(0), *Offset = Load.getArgOperand(1), *Slot;
  if (Load.getIntrinsicID() == Intrinsic::type_checked_load_relative)
    Slot = Builder.CreateIntrinsic(Intrinsic::load_relative, {Offset->getType()}, {Table, Offset});
  else
    Slot = Builder.CreateLoad(Builder.getPtrTy(), Builder.CreatePtrAdd(Table, Offset));
  for (User *U : make_early_inc_range(Load.users())) {
    auto *Part = cast<ExtractValueInst>(U);
    Part->replaceAllUsesWith(Part->getIndices()[0] == 0 ? Slot : Builder.getTrue());
    Part->eraseFromParent();
  }
  Load.eraseFromParent();
}

} // namespace

extern "C" {

// Whether bodies of the module may have tests that code relies on. Bodies need not be read.
bool uruk_llvm_declares_type_tests(LLVMModuleRef Handle) {
  auto IsDeclared = [&](Intrinsic::ID Called) { return Intrinsic::getDeclarationIfExists(unwrap(Handle), Called) != nullptr; };
  return IsDeclared(Intrinsic::type_test) || any_of(CheckedLoads, IsDeclared);
}

// Lowers the tests of the bodies that are read, if all are only assumed. If code relies on one, nothing is changed, and the answer is the
// name of the function.
char *uruk_llvm_lower_type_tests(LLVMModuleRef Handle) {
  Module &M = *unwrap(Handle);
  if (const Function *F = relyingOnTest(M)) return LLVMCreateMessage(F->getName().str().c_str());
  // Public tests too: their types may have members in libraries, so nothing can be learned from them.
  for (Intrinsic::ID Test : {Intrinsic::type_test, Intrinsic::public_type_test})
    for (CallInst *Call : callsOf(M, Test)) {
      Call->replaceAllUsesWith(ConstantInt::getTrue(M.getContext()));
      Call->eraseFromParent();
    }
  for (Intrinsic::ID Load : CheckedLoads)
    for (CallInst *Checked : callsOf(M, Load)) loadUnchecked(*Checked);
  // Functions that only such loads find would be taken for unused.
  if (M.getModuleFlag("Virtual Function Elim")) M.setModuleFlag(Module::Error, "Virtual Function Elim", 0u);
  return nullptr;
}

} // extern "C"
