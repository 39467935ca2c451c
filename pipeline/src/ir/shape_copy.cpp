// Gives a copy of a module the shape of that module. Called from `ffi.rs` alone.
//
// The copy is read as the module was, and must read the same. So the addresses have the places in the table that the hit of another module
// fills, and no difference between module and copy goes unnoticed.

#include "shape.h"
#include <llvm-c/Core.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

using namespace llvm;

namespace {

class Copy {
public:
  Copy(Module &M, shape::Reader &Shape)
      : M(M), Shape(Shape), Ptr(PointerType::get(M.getContext(), 0)), Byte(Type::getInt8Ty(M.getContext())) {}

  bool take() {
    if (!order()) return false;
    rename();
    makeTable();
    for (GlobalValue *G : Shape.Order) {
      if (auto *V = dyn_cast<GlobalVariable>(G)) value(*V);
      if (auto *F = dyn_cast<Function>(G)) body(*F);
    }
    M.setModuleIdentifier("shape");
    M.setSourceFileName("shape");
    if (NamedMDNode *Compiler = M.getNamedMetadata("llvm.ident")) M.eraseNamedMetadata(Compiler);
    return true;
  }

private:
  Module &M;
  shape::Reader &Shape;
  PointerType *Ptr;
  Type *Byte;
  SmallVector<Constant *, 64> Places;
  GlobalVariable *Table = nullptr;

  static std::string numbered(char Kind, size_t Number) { return (shape::Prefix + Twine(Kind) + Twine(Number)).str(); }

  // Leaves the globals that count, in their order.
  bool order() {
    SmallVector<GlobalValue *, 64> Dead;
    for (GlobalValue &G : M.global_values())
      if (!Shape.Order.contains(&G)) Dead.push_back(&G);
    for (GlobalValue *G : Dead) {
      if (auto *F = dyn_cast<Function>(G)) F->deleteBody();
      else cast<GlobalVariable>(G)->setInitializer(nullptr);
    }
    for (GlobalValue *G : Dead) {
      G->removeDeadConstantUsers();
      if (!G->use_empty()) return false;
      G->eraseFromParent();
    }
    for (GlobalValue *G : Shape.Order) {
      if (auto *F = dyn_cast<Function>(G)) {
        F->removeFromParent();
        M.getFunctionList().push_back(F);
      } else {
        auto *V = cast<GlobalVariable>(G);
        V->removeFromParent();
        M.insertGlobalVariable(V);
      }
    }
    return true;
  }

  void rename() {
    for (size_t Number = 0; Number != Shape.Order.size(); ++Number)
      if (shape::isDefinition(*Shape.Order[Number])) Shape.Order[Number]->setName(numbered('d', Number));
  }

  // The table's own value is not known to passes, which would take two entries for two objects.
  void makeTable() {
    for (size_t Slot = 0; Slot != Shape.Table.size(); ++Slot) Places.push_back(M.getOrInsertGlobal(numbered('p', Slot), Byte));
    if (Places.empty()) return;
    auto *Type = ArrayType::get(Ptr, Places.size());
    auto *Value = ConstantArray::get(Type, Places);
    Table = new GlobalVariable(M, Type, false, GlobalValue::InternalLinkage, Value, (shape::Prefix + "addresses").str());
    Table->setExternallyInitialized(true);
    Table->setAlignment(Align(8));
  }

  void value(GlobalVariable &V) {
    uint64_t Address = Shape.addressIn(V);
    if (!Address) return;
    auto [Slot, Distance] = Shape.place(Address);
    auto *Far = ConstantInt::get(Type::getInt64Ty(M.getContext()), Distance);
    V.setInitializer(Distance ? ConstantExpr::getGetElementPtr(Byte, Places[Slot], ArrayRef<Constant *>(Far)) : Places[Slot]);
    V.setExternallyInitialized(true);
    V.setConstant(false);
  }

  Value *load(IRBuilder<> &B, uint64_t Address, Type *T) {
    auto [Slot, Distance] = Shape.place(Address);
    Type *Loaded = Distance ? cast<Type>(Ptr) : T;
    auto *Load = B.CreateAlignedLoad(Loaded, B.CreateConstInBoundsGEP1_64(Byte, Table, uint64_t(Slot) * 8), Align(8));
    Load->setMetadata(LLVMContext::MD_invariant_load, MDNode::get(M.getContext(), {}));
    if (!Distance) return Load;
    Value *There = B.CreateConstGEP1_64(Byte, Load, Distance);
    return T == Ptr ? There : B.CreatePtrToInt(There, T);
  }

  Value *make(IRBuilder<> &B, Constant *C) {
    if (!Shape.hasAddress(C)) return C;
    if (auto *Number = dyn_cast<ConstantInt>(C)) return load(B, Number->getZExtValue(), Number->getType());
    if (auto *E = dyn_cast<ConstantExpr>(C)) {
      if (auto *Number = dyn_cast<ConstantInt>(E->getOperand(0)); Number && E->getOpcode() == Instruction::IntToPtr)
        return load(B, Number->getZExtValue(), Ptr);
      Instruction *I = E->getAsInstruction();
      unsigned Taken = E->getOpcode() == Instruction::GetElementPtr ? 1 : I->getNumOperands();
      for (unsigned Operand = 0; Operand != Taken; ++Operand) I->setOperand(Operand, make(B, E->getOperand(Operand)));
      return B.Insert(I);
    }
    auto *Vector = cast<FixedVectorType>(C->getType());
    Value *Result = PoisonValue::get(Vector);
    for (unsigned I = 0; I != Vector->getNumElements(); ++I)
      Result = B.CreateInsertElement(Result, make(B, C->getAggregateElement(I)), B.getInt64(I));
    return Result;
  }

  // A block may come to a function several times, and must bring the same value each time.
  void incoming(PHINode &Phi) {
    std::map<std::pair<BasicBlock *, Constant *>, Value *> Made;
    for (unsigned I = 0; I != Phi.getNumIncomingValues(); ++I) {
      auto *C = dyn_cast<Constant>(Phi.getIncomingValue(I));
      if (!C || !Shape.hasAddress(C)) continue;
      BasicBlock *From = Phi.getIncomingBlock(I);
      Value *&V = Made[{From, C}];
      if (!V) {
        IRBuilder<> B(From->getTerminator());
        V = make(B, C);
      }
      Phi.setIncomingValue(I, V);
    }
  }

  void align(Instruction &I) {
    const DataLayout &Layout = M.getDataLayout();
    if (auto *Load = dyn_cast<LoadInst>(&I); Load && Load->isSimple())
      Load->setAlignment(shape::capped(Load->getAlign(), Load->getType(), Layout));
    else if (auto *Store = dyn_cast<StoreInst>(&I); Store && Store->isSimple())
      Store->setAlignment(shape::capped(Store->getAlign(), Store->getValueOperand()->getType(), Layout));
    else if (auto *Filled = dyn_cast<MemIntrinsic>(&I)) {
      if (Filled->getDestAlign()) Filled->setDestAlignment(shape::capped(Filled->getDestAlign()));
      if (auto *Copied = dyn_cast<MemTransferInst>(Filled); Copied && Copied->getSourceAlign())
        Copied->setSourceAlignment(shape::capped(Copied->getSourceAlign()));
    }
  }

  void body(Function &F) {
    SmallVector<Instruction *, 256> All;
    for (Instruction &I : instructions(F)) All.push_back(&I);
    for (Instruction *I : All) {
      align(*I);
      if (auto *Phi = dyn_cast<PHINode>(I)) {
        incoming(*Phi);
        continue;
      }
      for (Use &U : I->operands()) {
        auto *C = dyn_cast<Constant>(U.get());
        if (!C || !Shape.hasAddress(C) || !shape::mayBeLoaded(*I, U)) continue;
        IRBuilder<> B(I);
        U.set(make(B, C));
      }
    }
  }
};

} // namespace

extern "C" {

// Gives the module its shape, if it reads as `Text`. If not, answers why, and the module is of no use any more.
char *uruk_llvm_take_shape(LLVMModuleRef Handle, const char *Text, size_t Size) {
  Module &M = *unwrap(Handle);
  shape::Reader Shape(M);
  if (!Shape.read()) return LLVMCreateMessage(("its copy has no shape: " + Shape.Why).c_str());
  ArrayRef<char> Original(Text, Size);
  if (ArrayRef<char>(Shape.Text) != Original) {
    size_t At = mismatch(Shape.Text, Original).first - Shape.Text.begin();
    return LLVMCreateMessage(("its copy by way of bitcode differs in " + Shape.subject(At)).c_str());
  }
  return Copy(M, Shape).take() ? nullptr : LLVMCreateMessage("what no definition leads to is in use");
}

} // extern "C"
