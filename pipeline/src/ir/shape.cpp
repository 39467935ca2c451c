// Reads the shape of a module, and changes nothing of it. Called from `ffi.rs` alone.
//
// What is written is known: each kind of constant, instruction, attribute and metadata has its case, and any other kind means that the
// module has no shape. So nothing that decides about code can be forgotten silently. Things that come again are written by number: types,
// constants, attributes and nodes of metadata are unique in a context, and are numbered as they come up.

#include "shape.h"
#include <llvm-c/Core.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/ConstantRange.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Metadata.h>
#include <llvm/IR/Operator.h>
#include <llvm/IR/Type.h>

using namespace llvm;

namespace shape {

namespace {

// How near an address lies to the one that it is found from, and how far from the lowest of its group.
constexpr uint64_t GapBytes = 64, GroupBytes = 4096;
// How deep constants, types and metadata nest.
constexpr unsigned DepthMax = 256;

constexpr unsigned FixedKinds = 0
#define LLVM_FIXED_MD_KIND(EnumID, Name, Value) +1
#include <llvm/IR/FixedMetadataKinds.def>
#undef LLVM_FIXED_MD_KIND
    ;

// Intrinsics with arguments that are values like any other.
bool takesValues(Intrinsic::ID Id) {
  switch (Id) {
  case Intrinsic::memcpy:
  case Intrinsic::memmove:
  case Intrinsic::memset:
  case Intrinsic::umin:
  case Intrinsic::umax:
  case Intrinsic::smin:
  case Intrinsic::smax:
  case Intrinsic::uadd_with_overflow:
  case Intrinsic::sadd_with_overflow:
  case Intrinsic::usub_with_overflow:
  case Intrinsic::ssub_with_overflow:
  case Intrinsic::umul_with_overflow:
  case Intrinsic::smul_with_overflow:
    return true;
  default:
    return false;
  }
}

// Passes know the functions of the C library by their names: what a call of one does, and that its own code is not to become such a call. In a
// module that defines such a name they would take the renamed definition for another function.
class LibraryNames {
  TargetLibraryInfoImpl Library;

public:
  explicit LibraryNames(const Module &M) : Library(M.getTargetTriple()) {}
  bool hasDefined(const GlobalValue &G) const {
    LibFunc Function;
    return isDefinition(G) && Library.getLibFunc(G.getName(), Function);
  }
};

const ConstantInt *asAddress(const Constant *C) {
  auto *Number = dyn_cast<ConstantInt>(C);
  return Number && Number->getType()->isIntegerTy(64) && isAddress(Number->getZExtValue()) ? Number : nullptr;
}

bool isAddressData(const ConstantDataVector &Data) {
  if (!Data.getElementType()->isIntegerTy(64)) return false;
  for (unsigned I = 0; I != Data.getNumElements(); ++I)
    if (isAddress(Data.getElementAsInteger(I))) return true;
  return false;
}

// Expressions that an instruction can stand for, if the operand is a value.
bool isTaken(const ConstantExpr &E) {
  switch (E.getOpcode()) {
  case Instruction::IntToPtr:
    return E.getType() == PointerType::get(E.getContext(), 0);
  case Instruction::Add:
  case Instruction::Sub:
  case Instruction::Xor:
  case Instruction::PtrToInt:
  case Instruction::Trunc:
  case Instruction::BitCast:
    return true;
  case Instruction::GetElementPtr:
    return !cast<GEPOperator>(E).getInRange();
  default:
    return false;
  }
}

// How many operands of an expression are looked into.
unsigned takenOperands(const ConstantExpr &E) {
  return E.getOpcode() == Instruction::GetElementPtr ? 1 : E.getNumOperands();
}

} // namespace

bool mayBeLoaded(const Instruction &I, const Use &U) {
  unsigned Number = U.getOperandNo();
  switch (I.getOpcode()) {
  case Instruction::Switch:
  case Instruction::Alloca:
  case Instruction::LandingPad:
  case Instruction::ShuffleVector:
    return false;
  case Instruction::GetElementPtr:
  case Instruction::ExtractElement:
    return Number == 0;
  case Instruction::InsertElement:
    return Number < 2;
  default:
    break;
  }
  auto *Call = dyn_cast<CallBase>(&I);
  if (!Call) return true;
  // Assembly may ask for a number that is known when it is assembled.
  if (Call->isInlineAsm()) return false;
  if (auto *F = Call->getCalledFunction(); F && F->isIntrinsic() && !takesValues(F->getIntrinsicID())) return false;
  if (Call->isCallee(&U)) return true;
  return Call->isArgOperand(&U) && !Call->paramHasAttr(Call->getArgOperandNo(&U), Attribute::ImmArg);
}

Align capped(Align Now, Type *T, const DataLayout &Layout) { return std::min(Now, Layout.getABITypeAlign(T)); }

MaybeAlign capped(MaybeAlign Now) { return Now ? std::min(*Now, Align(8)) : Now; }

bool Reader::hasAddress(const Constant *C) {
  if (isa<ConstantInt>(C)) return asAddress(C);
  if (auto *Data = dyn_cast<ConstantDataVector>(C)) return isAddressData(*Data);
  auto *E = dyn_cast<ConstantExpr>(C);
  if (!(E && isTaken(*E)) && !isa<ConstantVector>(C)) return false;
  if (auto Found = HasAddress.find(C); Found != HasAddress.end()) return Found->second;
  bool Result = false;
  if (++Depth > DepthMax) refuse("it is nested too deep");
  else
    for (unsigned I = 0, End = E ? takenOperands(*E) : C->getNumOperands(); I != End && !Result; ++I)
      Result = hasAddress(cast<Constant>(C->getOperand(I)));
  --Depth;
  return HasAddress[C] = Result;
}

uint64_t Reader::addressIn(const GlobalVariable &V) const {
  // Passes would take the value as it is from a variable that is not to change, so it may be given another initializer.
  if (!V.hasInitializer() || !V.hasLocalLinkage() || V.isThreadLocal() || V.isExternallyInitialized()) return 0;
  auto *E = dyn_cast<ConstantExpr>(V.getInitializer());
  if (!E || E->getOpcode() != Instruction::IntToPtr || !isTaken(*E)) return 0;
  auto *Number = asAddress(E->getOperand(0));
  return Number ? Number->getZExtValue() : 0;
}

// ---- First pass: what counts, and which addresses there are.

// Why a global is none that a shape may have, or null.
const char *Reader::oddity(const GlobalValue &G) const {
  auto *Object = dyn_cast<GlobalObject>(&G);
  StringRef Name = G.getName();
  if (!Object || isa<GlobalIFunc>(G)) return "an alias or an indirect function";
  if (Object->hasComdat()) return "a COMDAT";
  if (Object->hasSection() || G.hasPartition()) return "a section or partition";
  if (G.hasSanitizerMetadata()) return "a sanitizer's mark";
  if (G.hasAppendingLinkage() || G.hasCommonLinkage()) return "appending or common linkage";
  if (G.getDLLStorageClass() != GlobalValue::DefaultStorageClass) return "a storage class of DLLs";
  if (Name.starts_with("\1") || Name.starts_with("__start_") || Name.starts_with("__stop_")) return "a name that the linker reads";
  if (!G.hasName() && !G.hasLocalLinkage()) return "no name, though others see it";
  auto *F = dyn_cast<Function>(&G);
  if (!F) return Name.starts_with("llvm.") ? "a name of LLVM's own" : nullptr;
  if (F->isMaterializable()) return "a body that has not been read yet";
  if (F->getSubprogram()) return "debug information";
  if (F->hasGC() || F->hasPrefixData() || F->hasPrologueData()) return "a collector, or data before its code";
  return isDefinition(G) && F->isIntrinsic() ? "a body, though it is an intrinsic" : nullptr;
}

void Reader::see(const Constant *C, SmallPtrSetImpl<const Constant *> &Seen) {
  if (auto *G = dyn_cast<GlobalValue>(C)) {
    Order.insert(const_cast<GlobalValue *>(G));
    return;
  }
  if (C->getNumOperands() == 0 || !Seen.insert(C).second) return;
  if (++Depth > DepthMax) refuse("it is nested too deep");
  else
    for (const Use &U : C->operands())
      if (auto *Operand = dyn_cast<Constant>(U.get())) see(Operand, Seen);
  --Depth;
}

void Reader::gather(const Constant *C) {
  if (!hasAddress(C)) return;
  if (auto *Number = asAddress(C)) {
    Bases.emplace(Number->getZExtValue(), 0);
  } else if (auto *Data = dyn_cast<ConstantDataVector>(C)) {
    for (unsigned I = 0; I != Data->getNumElements(); ++I)
      if (uint64_t Value = Data->getElementAsInteger(I); isAddress(Value)) Bases.emplace(Value, 0);
  } else {
    auto *E = dyn_cast<ConstantExpr>(C);
    for (unsigned I = 0, End = E ? takenOperands(*E) : C->getNumOperands(); I != End; ++I) gather(cast<Constant>(C->getOperand(I)));
  }
}

void Reader::group() {
  uint64_t Base = 0, Last = 0;
  for (auto &[Address, From] : Bases) {
    if (Base == 0 || Address - Last > GapBytes || Address - Base > GroupBytes) Base = Address;
    From = Base;
    Last = Address;
  }
}

void Reader::refuse(const Twine &Reason) {
  if (Known) Why = (Reason + (Current && Current->hasName() ? ", in `" + Current->getName().str() + "`" : "")).str();
  Known = false;
}

// Lists of what is to be kept or run, and other names, are not of one function's making.
void Reader::refuseParts() {
  if (!M.alias_empty() || !M.ifunc_empty()) refuse("an alias or an indirect function");
  if (!M.getModuleInlineAsm().empty()) refuse("assembly of the module");
  LibraryNames Library(M);
  for (GlobalValue &G : M.global_values()) {
    Current = &G;
    if (G.hasAppendingLinkage()) refuse("appending linkage");
    if (G.getName().starts_with(Prefix)) refuse("a name that shapes use");
    if (Library.hasDefined(G)) refuse("the name of a function of the C library");
  }
  Current = nullptr;
}

void Reader::follow() {
  refuseParts();
  SmallPtrSet<const Constant *, 32> Seen;
  for (GlobalValue &G : M.global_values())
    if (isDefinition(G) && !G.hasLocalLinkage()) Order.insert(&G);
  for (size_t At = 0; At != Order.size() && Known; ++At) {
    GlobalValue *G = Order[At];
    Current = G;
    if (const char *Oddity = oddity(*G)) refuse(Oddity);
    for (const Use &U : cast<User>(G)->operands())
      if (auto *C = dyn_cast<Constant>(U.get())) see(C, Seen);
    if (auto *V = dyn_cast<GlobalVariable>(G); V && addressIn(*V)) Bases.emplace(addressIn(*V), 0);
    auto *F = dyn_cast<Function>(G);
    if (!F || !Known) continue;
    for (const Instruction &I : instructions(*F))
      for (const Use &U : I.operands())
        if (auto *C = dyn_cast<Constant>(U.get())) {
          see(C, Seen);
          if (mayBeLoaded(I, U)) gather(C);
        }
  }
  Current = nullptr;
  group();
}

std::pair<unsigned, uint64_t> Reader::place(uint64_t Value) {
  uint64_t Base = Bases[Value];
  auto Slot = Slots.try_emplace(Base, unsigned(Table.size()));
  if (Slot.second) Table.push_back(Base);
  return {Slot.first->second, Value - Base};
}

// ---- Second pass: writing.

void Reader::number(uint64_t Value) {
  while (Value >= 0x80) {
    Text.push_back(char(Value | 0x80));
    Value >>= 7;
  }
  Text.push_back(char(Value));
}

void Reader::bytes(StringRef Bytes) {
  number(Bytes.size());
  Text.append(Bytes.begin(), Bytes.end());
}

void Reader::big(const APInt &Value) {
  number(Value.getBitWidth());
  for (unsigned I = 0; I != Value.getNumWords(); ++I) number(Value.getRawData()[I]);
}

// Writes which of those that came up it is; answers whether it comes up now, and is to be written.
bool Reader::first(DenseMap<const void *, unsigned> &Seen, const void *What) {
  auto Found = Seen.try_emplace(What, unsigned(Seen.size()));
  number(Found.second ? 0 : Found.first->second + 1);
  return Found.second;
}

void Reader::type(const Type *T) {
  if (!first(Types, T)) return;
  number(T->getTypeID());
  if (++Depth > DepthMax) refuse("it is nested too deep");
  switch (Known ? T->getTypeID() : Type::VoidTyID) {
  case Type::VoidTyID:
  case Type::HalfTyID:
  case Type::BFloatTyID:
  case Type::FloatTyID:
  case Type::DoubleTyID:
  case Type::X86_FP80TyID:
  case Type::FP128TyID:
  case Type::PPC_FP128TyID:
  case Type::LabelTyID:
  case Type::MetadataTyID:
  case Type::TokenTyID:
    break;
  case Type::IntegerTyID:
    number(T->getIntegerBitWidth());
    break;
  case Type::PointerTyID:
    number(T->getPointerAddressSpace());
    break;
  case Type::StructTyID: {
    auto *Struct = cast<StructType>(T);
    number(Struct->isOpaque() | Struct->isPacked() << 1 | Struct->isLiteral() << 2);
    number(Struct->getNumElements());
    for (Type *Element : Struct->elements()) type(Element);
    break;
  }
  case Type::ArrayTyID:
    number(T->getArrayNumElements());
    type(T->getArrayElementType());
    break;
  case Type::FixedVectorTyID:
    number(cast<FixedVectorType>(T)->getNumElements());
    type(cast<FixedVectorType>(T)->getElementType());
    break;
  case Type::FunctionTyID: {
    auto *Function = cast<FunctionType>(T);
    number(Function->isVarArg());
    type(Function->getReturnType());
    number(Function->getNumParams());
    for (Type *Parameter : Function->params()) type(Parameter);
    break;
  }
  default:
    refuse("a type of kind " + Twine(T->getTypeID()));
  }
  --Depth;
}

void Reader::constant(const Constant *C) {
  if (auto *G = dyn_cast<GlobalValue>(C)) {
    auto Found = Globals.find(G);
    if (Found == Globals.end()) refuse("a mention of `" + G->getName() + "`");
    else number(1), number(Found->second);
    return;
  }
  number(0);
  if (!first(Constants, C)) return;
  if (++Depth > DepthMax) refuse("it is nested too deep");
  type(C->getType());
  number(C->getValueID());
  switch (Known ? C->getValueID() : unsigned(Value::UndefValueVal)) {
  case Value::UndefValueVal:
  case Value::PoisonValueVal:
  case Value::ConstantAggregateZeroVal:
  case Value::ConstantPointerNullVal:
  case Value::ConstantTokenNoneVal:
    break;
  case Value::ConstantIntVal:
    big(cast<ConstantInt>(C)->getValue());
    break;
  case Value::ConstantFPVal:
    big(cast<ConstantFP>(C)->getValueAPF().bitcastToAPInt());
    break;
  case Value::ConstantDataArrayVal:
  case Value::ConstantDataVectorVal:
    bytes(cast<ConstantDataSequential>(C)->getRawDataValues());
    break;
  case Value::ConstantExprVal: {
    auto *E = cast<ConstantExpr>(C);
    number(E->getOpcode());
    number(E->getRawSubclassOptionalData());
    if (auto *Element = dyn_cast<GEPOperator>(E)) {
      type(Element->getSourceElementType());
      if (Element->getInRange()) refuse("an address with `inrange`");
    } else if (!E->isCast() && !Instruction::isBinaryOp(E->getOpcode())) {
      refuse(Twine("the constant expression `") + E->getOpcodeName() + "`");
    }
    [[fallthrough]];
  }
  case Value::ConstantArrayVal:
  case Value::ConstantStructVal:
  case Value::ConstantVectorVal:
    number(C->getNumOperands());
    for (const Use &U : C->operands()) constant(cast<Constant>(U.get()));
    break;
  default:
    refuse("a constant of kind " + Twine(C->getValueID()));
  }
  --Depth;
}

// Writes a constant whose addresses are loaded: by their places.
void Reader::loaded(const Constant *C) {
  auto address = [&](const ConstantInt &Number) {
    auto [Slot, Distance] = place(Number.getZExtValue());
    number(Slot), number(Distance);
  };
  auto part = [&](const Constant *Part) {
    number(hasAddress(Part));
    if (hasAddress(Part)) loaded(Part);
    else constant(Part);
  };
  type(C->getType());
  number(C->getValueID());
  if (auto *Number = asAddress(C)) return address(*Number);
  auto *E = dyn_cast<ConstantExpr>(C);
  if (!E) { // A vector.
    unsigned Elements = cast<FixedVectorType>(C->getType())->getNumElements();
    for (unsigned I = 0; I != Elements; ++I) part(C->getAggregateElement(I));
    return;
  }
  number(E->getOpcode());
  number(E->getRawSubclassOptionalData());
  if (auto *Element = dyn_cast<GEPOperator>(E)) type(Element->getSourceElementType());
  number(E->getNumOperands());
  for (unsigned I = 0; I != E->getNumOperands(); ++I) {
    if (I < takenOperands(*E)) part(E->getOperand(I));
    else number(2), constant(E->getOperand(I));
  }
}

void Reader::attribute(const Attribute &A) {
  auto range = [&](const ConstantRange &Range) { big(Range.getLower()), big(Range.getUpper()); };
  if (A.isStringAttribute()) {
    number(0), bytes(A.getKindAsString()), bytes(A.getValueAsString());
    return;
  }
  number(A.getKindAsEnum());
  if (A.isIntAttribute()) {
    bool IsCapped = IsCapping && A.getKindAsEnum() == Attribute::Alignment;
    number(IsCapped ? capped(A.getAlignment())->value() : A.getValueAsInt());
  } else if (A.isTypeAttribute()) {
    number(A.getValueAsType() != nullptr);
    if (A.getValueAsType()) type(A.getValueAsType());
  } else if (A.isConstantRangeAttribute()) {
    range(A.getValueAsConstantRange());
  } else if (A.isConstantRangeListAttribute()) {
    number(A.getValueAsConstantRangeList().size());
    for (const ConstantRange &Range : A.getValueAsConstantRangeList()) range(Range);
  } else if (!A.isEnumAttribute()) {
    refuse("the attribute `" + A.getAsString() + "`");
  }
}

void Reader::attributes(AttributeSet Set) {
  number(Set.getNumAttributes());
  for (const Attribute &A : Set) attribute(A);
}

// Lists that differ in alignments alone read the same when these are capped, so they have no numbers.
void Reader::attributes(AttributeList List, bool CapsAlign) {
  number(CapsAlign);
  if (!CapsAlign && !first(Attributes, List.getRawPointer())) return;
  IsCapping = CapsAlign;
  number(List.getNumAttrSets());
  for (unsigned Index : List.indexes()) attributes(List.getAttributes(Index));
  IsCapping = false;
}

void Reader::metadata(const Metadata *Node) {
  if (!Node) return number(0);
  if (auto *Text = dyn_cast<MDString>(Node)) return number(1), bytes(Text->getString());
  if (auto *Value = dyn_cast<ConstantAsMetadata>(Node)) {
    // A global in metadata is no reference that keeps it.
    if (isa<GlobalValue>(Value->getValue())) refuse("a global in metadata");
    return number(2), constant(Value->getValue());
  }
  auto *Tuple = dyn_cast<MDTuple>(Node);
  if (!Tuple || Tuple->isTemporary() || Depth >= DepthMax) return refuse("metadata of kind " + Twine(Node->getMetadataID()));
  number(3);
  if (!first(Nodes, Tuple)) return;
  ++Depth;
  number(Tuple->isDistinct());
  number(Tuple->getNumOperands());
  for (const MDOperand &Operand : Tuple->operands()) metadata(Operand.get());
  --Depth;
}

// A kind of LLVM's own has a number that is the same everywhere.
void Reader::attachments(const Kinds &Attached) {
  number(Attached.size());
  for (auto &[Kind, Node] : Attached) {
    if (Kind >= FixedKinds) refuse("metadata of a kind that is not LLVM's");
    if (Kind == LLVMContext::MD_dbg) refuse("debug information");
    number(Kind), metadata(Node);
  }
}

void Reader::operand(const Value *V, bool MayBeLoaded) {
  if (!V) return refuse("an operand that is missing");
  if (auto Found = Locals.find(V); Found != Locals.end()) return number(0), number(Found->second);
  if (auto *C = dyn_cast<Constant>(V)) {
    bool IsLoaded = MayBeLoaded && hasAddress(C);
    number(IsLoaded ? 1 : 2);
    return IsLoaded ? loaded(C) : constant(C);
  }
  if (auto *Wrapped = dyn_cast<MetadataAsValue>(V)) return number(3), metadata(Wrapped->getMetadata());
  auto *Assembly = dyn_cast<InlineAsm>(V);
  // One with a text may define symbols.
  if (!Assembly || !Assembly->getAsmString().empty()) return refuse("assembly");
  number(4), type(Assembly->getFunctionType()), bytes(Assembly->getConstraintString());
  number(Assembly->hasSideEffects() | Assembly->isAlignStack() << 1 | Assembly->canThrow() << 2 | unsigned(Assembly->getDialect()) << 3);
}

void Reader::call(const CallBase &Call) {
  number(Call.getCallingConv());
  type(Call.getFunctionType());
  attributes(Call.getAttributes(), isa<MemIntrinsic>(Call));
  if (auto *Plain = dyn_cast<CallInst>(&Call)) number(Plain->getTailCallKind());
  number(Call.getNumOperandBundles());
  for (unsigned I = 0; I != Call.getNumOperandBundles(); ++I) {
    OperandBundleUse Bundle = Call.getOperandBundleAt(I);
    bytes(Bundle.getTagName()), number(Bundle.Inputs.size());
  }
}

// All that an instruction has besides its operands, and what is behind these.
void Reader::special(const Instruction &I) {
  const DataLayout &Layout = M.getDataLayout();
  auto scope = [&](SyncScope::ID Id) {
    if (Id > SyncScope::System) refuse("a scope of synchronization that is not LLVM's");
    number(Id);
  };
  auto access = [&](bool IsVolatile, AtomicOrdering Ordering, SyncScope::ID Scope, Align Alignment, Type *T) {
    bool IsPlain = !IsVolatile && Ordering == AtomicOrdering::NotAtomic;
    number(IsVolatile), number(unsigned(Ordering)), scope(Scope);
    number(Log2(IsPlain ? capped(Alignment, T, Layout) : Alignment));
  };
  switch (I.getOpcode()) {
  case Instruction::Ret:
  case Instruction::Br:
  case Instruction::Resume:
  case Instruction::Unreachable:
  case Instruction::Select:
  case Instruction::VAArg:
  case Instruction::ExtractElement:
  case Instruction::InsertElement:
  case Instruction::Freeze:
    break;
  case Instruction::Switch: {
    auto &Switch = cast<SwitchInst>(I);
    number(Switch.getNumCases());
    for (auto &Case : Switch.cases()) constant(Case.getCaseValue()), operand(Case.getCaseSuccessor(), false);
    break;
  }
  case Instruction::Call:
  case Instruction::Invoke:
    call(cast<CallBase>(I));
    break;
  case Instruction::Alloca: {
    auto &Alloca = cast<AllocaInst>(I);
    type(Alloca.getAllocatedType());
    number(Log2(Alloca.getAlign()));
    number(Alloca.isUsedWithInAlloca() | Alloca.isSwiftError() << 1);
    break;
  }
  case Instruction::Load: {
    auto &Load = cast<LoadInst>(I);
    access(Load.isVolatile(), Load.getOrdering(), Load.getSyncScopeID(), Load.getAlign(), Load.getType());
    break;
  }
  case Instruction::Store: {
    auto &Store = cast<StoreInst>(I);
    access(Store.isVolatile(), Store.getOrdering(), Store.getSyncScopeID(), Store.getAlign(), Store.getValueOperand()->getType());
    break;
  }
  case Instruction::GetElementPtr:
    type(cast<GetElementPtrInst>(I).getSourceElementType());
    break;
  case Instruction::Fence:
    number(unsigned(cast<FenceInst>(I).getOrdering())), scope(cast<FenceInst>(I).getSyncScopeID());
    break;
  case Instruction::AtomicCmpXchg: {
    auto &Exchange = cast<AtomicCmpXchgInst>(I);
    number(Exchange.isVolatile() | Exchange.isWeak() << 1), scope(Exchange.getSyncScopeID());
    number(unsigned(Exchange.getSuccessOrdering())), number(unsigned(Exchange.getFailureOrdering()));
    number(Log2(Exchange.getAlign()));
    break;
  }
  case Instruction::AtomicRMW: {
    auto &Change = cast<AtomicRMWInst>(I);
    number(Change.isVolatile()), number(Change.getOperation()), scope(Change.getSyncScopeID());
    number(unsigned(Change.getOrdering())), number(Log2(Change.getAlign()));
    break;
  }
  case Instruction::ICmp:
  case Instruction::FCmp:
    number(cast<CmpInst>(I).getPredicate());
    break;
  case Instruction::PHI:
    for (const BasicBlock *From : cast<PHINode>(I).blocks()) operand(From, false);
    break;
  case Instruction::ShuffleVector: {
    ArrayRef<int> Mask = cast<ShuffleVectorInst>(I).getShuffleMask();
    number(Mask.size());
    for (int Element : Mask) number(uint32_t(Element));
    break;
  }
  case Instruction::ExtractValue:
    number(cast<ExtractValueInst>(I).getNumIndices());
    for (unsigned Index : cast<ExtractValueInst>(I).indices()) number(Index);
    break;
  case Instruction::InsertValue:
    number(cast<InsertValueInst>(I).getNumIndices());
    for (unsigned Index : cast<InsertValueInst>(I).indices()) number(Index);
    break;
  case Instruction::LandingPad: {
    auto &Pad = cast<LandingPadInst>(I);
    number(Pad.isCleanup());
    for (unsigned Clause = 0; Clause != Pad.getNumClauses(); ++Clause) number(Pad.isCatch(Clause));
    break;
  }
  default:
    if (!I.isUnaryOp() && !I.isBinaryOp() && !I.isCast()) refuse(Twine("the instruction `") + I.getOpcodeName() + "`");
  }
}

void Reader::instruction(const Instruction &I) {
  if (I.getDebugLoc() || I.hasDbgRecords()) refuse("debug information");
  number(I.getOpcode());
  type(I.getType());
  number(I.getRawSubclassOptionalData());
  special(I);
  number(I.getNumOperands());
  for (const Use &U : I.operands()) operand(U.get(), mayBeLoaded(I, U));
  number(I.hasMetadataOtherThanDebugLoc());
  if (!I.hasMetadataOtherThanDebugLoc()) return;
  Kinds Attached;
  I.getAllMetadataOtherThanDebugLoc(Attached);
  attachments(Attached);
}

void Reader::body(const Function &F) {
  Locals.clear();
  auto local = [&](const Value &V) { Locals.try_emplace(&V, unsigned(Locals.size())); };
  for (const Argument &A : F.args()) local(A);
  for (const BasicBlock &Block : F) {
    local(Block);
    for (const Instruction &I : Block) local(I);
  }
  number(F.size());
  for (const BasicBlock &Block : F) {
    if (!Known) return;
    number(Block.size());
    for (const Instruction &I : Block) instruction(I);
  }
}

void Reader::global(const GlobalValue &G) {
  auto &Object = cast<GlobalObject>(G);
  auto *F = dyn_cast<Function>(&G);
  number(F != nullptr);
  number(isDefinition(G));
  if (F && F->getIntrinsicID()) number(F->getIntrinsicID());
  else if (!isDefinition(G)) number(0), bytes(G.getName());
  type(G.getValueType());
  number(G.getLinkage()), number(G.getVisibility()), number(unsigned(G.getUnnamedAddr())), number(G.getThreadLocalMode());
  number(G.getAddressSpace()), number(G.isDSOLocal());
  MaybeAlign Alignment = F ? F->getAlign() : cast<GlobalVariable>(G).getAlign();
  number(Alignment ? Log2(*Alignment) + 1 : 0);
  Kinds Attached;
  Object.getAllMetadata(Attached);
  attachments(Attached);
  if (F) {
    number(F->getCallingConv());
    // An intrinsic's attributes are LLVM's affair: a module that is read from bitcode gets those that this LLVM gives it.
    if (!F->getIntrinsicID()) attributes(F->getAttributes(), false);
    number(F->hasPersonalityFn());
    if (F->hasPersonalityFn()) constant(F->getPersonalityFn());
    if (!F->empty()) body(*F);
    return;
  }
  auto &V = cast<GlobalVariable>(G);
  number(V.isConstant() | V.isExternallyInitialized() << 1 | V.hasInitializer() << 2);
  number(V.getCodeModelRaw()), attributes(V.getAttributes());
  if (!V.hasInitializer()) return;
  uint64_t Address = addressIn(V);
  number(Address != 0);
  if (!Address) return constant(V.getInitializer());
  auto [Slot, Distance] = place(Address);
  number(Slot), number(Distance);
}

void Reader::module() {
  bytes("uruk shape 2");
  bytes(M.getTargetTriple().str()), bytes(M.getDataLayoutStr());
  for (const NamedMDNode &Named : M.named_metadata()) {
    // The name of a compiler, which gets into a comment.
    if (Named.getName() == "llvm.ident") continue;
    bytes(Named.getName()), number(Named.getNumOperands());
    for (const MDNode *Node : Named.operands()) metadata(Node);
  }
  for (size_t At = 0; At != Order.size(); ++At) Globals[Order[At]] = unsigned(At);
  number(Order.size());
  for (const GlobalValue *G : Order) {
    if (!Known) break;
    Current = G;
    Begins.push_back(Text.size());
    global(*G);
  }
}

std::string Reader::subject(size_t At) const {
  auto Behind = upper_bound(Begins, At);
  if (Behind == Begins.begin()) return "triple, layout or metadata of the module";
  const GlobalValue *G = Order[Behind - Begins.begin() - 1];
  return "`" + G->getName().str() + "`";
}

bool Reader::read() {
  follow();
  if (Known) module();
  return Known;
}

} // namespace shape

extern "C" {

// Hands the form of the module, its definitions that others see with their numbers, and the addresses of its table, to the sinks. If the
// module has no shape, answers why.
char *uruk_llvm_read_shape(LLVMModuleRef Handle, void (*Text)(void *, const char *, size_t),
                           void (*Defined)(void *, const char *, size_t, size_t), void (*Address)(void *, uint64_t), void *Data) {
  shape::Reader Shape(*unwrap(Handle));
  if (!Shape.read()) return LLVMCreateMessage(Shape.Why.c_str());
  Text(Data, Shape.Text.data(), Shape.Text.size());
  for (size_t Number = 0; Number != Shape.Order.size(); ++Number) {
    GlobalValue *G = Shape.Order[Number];
    if (shape::isDefinition(*G) && !G->hasLocalLinkage()) Defined(Data, G->getName().data(), G->getName().size(), Number);
  }
  for (uint64_t Value : Shape.Table) Address(Data, Value);
  return nullptr;
}

} // extern "C"
