// Takes single functions out of a module whose bodies are read when they are wanted. Called from `ffi.rs` alone.
//
// A function that is compiled by itself has two names: its own, which is the stub that all code calls, and `uruk.body.` before it. A value
// that was local to the module is external in its parts, under its own name; `lazy_module.rs` has the linker tell it from that of others.

#include "parts.h"
#include <llvm-c/Core.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SCCIterator.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Support/Error.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/ValueMapper.h>

namespace {

// `lazy_module.rs` has the same.
const char *const BodyPrefix = "uruk.body.";

// The part to which a value belongs; `lazy_module.rs` has the same list.
enum Kind : uint32_t {
  Elsewhere,    // Not defined here, or only in order to be inlined.
  OnCall,       // A function that is compiled by itself.
  InData,       // Compiled together, with all variables.
  WithFunction, // A table of a function's blocks.
  OtherName,    // Of a function that is compiled by itself.
};

// `ffi.rs` has the same, with others.
enum ValueBits : uint32_t { Callable = 8, ThreadLocal = 16, Local = 64, Undefined = 128, Once = 256, NeverWritten = 512 };

// What a part has besides its function; `shell.rs` has the same list.
enum PartForm : uint32_t {
  Alone,
  Inlining,    // Copies of what it may inline.
  BesideImage, // The same, and of constants whose address no code can tell: an image has no names for them.
};

// How a stub is aligned.
const Align StubAlign(16);

// Parts know the contents of constants up to this size.
const uint64_t KnownBytesMax = 256;

// An upper tier's part has copies of the functions that it calls, up to this size and as deep: they may be inlined.
const unsigned CopiedInstructionsMax = 60, CopiedDepthMax = 2;

// Debug information is one graph over all of a module's types. Parts share it as it is: they are in one context.
const MetadataPredicate IsShared = [](const Metadata *M) {
  return isa<DINode, DILocation, DIExpression, DIGlobalVariableExpression, DIAssignID>(M);
};

// Whether callers of a function that was read may have a copy of it in order to inline it.
bool isCopied(const Function &F) {
  if (F.isInterposable() || F.getInstructionCount() > CopiedInstructionsMax) return false;
  for (auto Against : {Attribute::NoInline, Attribute::OptimizeNone, Attribute::Naked})
    if (F.hasFnAttribute(Against)) return false;
  return !hasAddressesTaken(F) && !AssemblyNames(F).definesAny();
}

// Whether a stub cannot stand for the function, because of its address, of data before or at the start of its code, or of data that code
// generation makes beside it.
bool isMoreThanItsCode(const Function &F) {
  return F.hasSection() || F.hasPrefixData() || F.hasPrologueData() || F.hasMetadata(LLVMContext::MD_kcfi_type) ||
         F.hasMetadata(LLVMContext::MD_func_sanitize) || F.getAlign().valueOrOne() > StubAlign || F.hasGC() ||
         F.getCallingConv() == CallingConv::X86_INTR;
}

// The functions whose blocks have their addresses elsewhere than in their own bodies, and those that have them.
void forEachSharingBlocks(Function &F, function_ref<void(const Function &)> Each) {
  SmallPtrSet<const User *, 16> Seen;
  SmallVector<const User *, 16> Work;
  for (BasicBlock &B : F)
    if (B.hasAddressTaken()) Work.push_back(BlockAddress::lookup(&B));
  while (!Work.empty()) {
    const User *U = Work.pop_back_val();
    if (!Seen.insert(U).second || isa<GlobalValue>(U)) continue; // `Shell::kindOf` of a variable looks at that.
    if (auto *I = dyn_cast<Instruction>(U)) {
      if (const Function *By = I->getFunction(); By != &F) Each(F), Each(*By);
    } else {
      Work.append(U->user_begin(), U->user_end());
    }
  }
}

// The functions that were read whose code refers to a constant.
void forEachReferring(const Constant &C, function_ref<void(const Function &)> Each) {
  for (const User *U : C.users()) {
    if (auto *I = dyn_cast<Instruction>(U)) Each(*I->getFunction());
    else if (auto *Around = dyn_cast<Constant>(U); Around && !isa<GlobalValue>(Around)) forEachReferring(*Around, Each);
  }
}

// Whether code generation puts something into the section for a function that was read. It is missing there as long as the function is.
bool fillsSection(const Function &F, StringRef Section) {
  if (Section == "__patchable_function_entries") return F.hasFnAttribute("patchable-function-entry");
  if (Section == F.getFnAttribute("patchable-function-entry-section").getValueAsString()) return true;
  if (Section == "__mcount_loc") return F.hasFnAttribute("mrecord-mcount");
  if (Section.starts_with("xray_")) return F.hasFnAttribute("function-instrument");
  return F.hasMetadata(LLVMContext::MD_pcsections) || any_of(instructions(F), [&](const Instruction &I) {
    auto *Call = dyn_cast<CallBase>(&I);
    auto *Asm = Call ? dyn_cast<InlineAsm>(Call->getCalledOperand()) : nullptr;
    return (Asm && Asm->getAsmString().contains(Section)) || I.hasMetadata(LLVMContext::MD_pcsections);
  });
}

bool callsOthers(const BasicBlock *B) {
  return any_of(*B, [](const Instruction &I) { return isa<CallBase>(I) && !isa<IntrinsicInst>(I); });
}

// How many loops lie in each other at most, and how many around one that calls nothing. Cycles that are entered in several places are loops
// of the first kind.
std::pair<uint32_t, uint32_t> loopDepths(Function &F) {
  uint32_t Depth = 0, Tight = 0;
  for (auto Cycle = scc_begin(&F); !Cycle.isAtEnd(); ++Cycle) Depth |= Cycle.hasCycle();
  if (Depth == 0) return {0, 0};
  DominatorTree Dominators(F);
  LoopInfo Loops(Dominators);
  for (const Loop *L : Loops.getLoopsInPreorder()) {
    Depth = std::max(Depth, L->getLoopDepth());
    if (none_of(L->blocks(), callsOthers)) Tight = std::max(Tight, L->getLoopDepth());
  }
  return {Depth, Tight};
}

// Whatever a global or an instruction is made of, without looking into other globals.
template <typename Each> void forEachConstant(const User &Whole, Each Look) {
  SmallPtrSet<const Constant *, 16> Seen;
  SmallVector<const Constant *, 16> Work;
  auto Take = [&](const Value *Operand) {
    auto *C = dyn_cast<Constant>(Operand);
    if (C && !isa<ConstantData>(C) && Seen.insert(C).second) Work.push_back(C);
  };
  for (const Value *Operand : Whole.operand_values()) Take(Operand);
  while (!Work.empty()) {
    const Constant *C = Work.pop_back_val();
    Look(*C);
    if (!isa<GlobalValue, BlockAddress>(C))
      for (const Value *Operand : C->operand_values()) Take(Operand);
  }
}

// A module whose functions leave it one after another. Values keep their numbers, by which all readings of one bitcode agree.
class Shell {
public:
  Shell(Module &M, bool KeepsDebugInfo)
      : M(M), KeepsDebugInfo(KeepsDebugInfo), Values(valuesInOrder(M)), Kinds(Values.size(), InData), Of(Values.size()), AreAliasees(Values.size()) {
    for (const Function &F : M) Assembly.read(F);
    for (uint32_t I = 0; I != Values.size(); ++I) {
      Index[Values[I]] = I;
      AreLocal.push_back(Values[I]->hasLocalLinkage());
      if (!Values[I]->hasName()) Values[I]->setName("uruk.unnamed." + Twine(I));
    }
    for (uint32_t I = 0; I != Values.size(); ++I)
      if (isa<Function>(Values[I])) Kinds[I] = kindOf(cast<Function>(*Values[I]));
    for (Function &F : M) forEachSharingBlocks(F, [&](const Function &Sharing) { toData(&Sharing); });
    for (const GlobalValue *G : Values) {
      if (!isDeclaredEndOfSections(*G)) continue;
      forEachReferring(*G, [&](const Function &F) { toData(&F), FindSections.insert(&F); });
      StringRef Section = G->getName().drop_front(StringRef("__").size()).split('_').second;
      StaysWhole |= any_of(M, [&](const Function &F) { return fillsSection(F, Section); });
    }
    for (GlobalIFunc &G : M.ifuncs())
      if (Function *Resolver = G.getResolverFunction()) {
        toData(Resolver);
        answersToData(*Resolver);
      }
    for (uint32_t I = 0; I != Values.size(); ++I)
      if (auto *V = dyn_cast<GlobalVariable>(Values[I])) Kinds[I] = kindOf(*V, I);
    for (uint32_t I = 0; I != Values.size(); ++I)
      if (auto *A = dyn_cast<GlobalAlias>(Values[I])) Kinds[I] = kindOf(*A, I);
    for (uint32_t I = 0; I != Values.size(); ++I)
      if (Kinds[I] == WithFunction && Kinds[Of[I]] != OnCall) Kinds[I] = InData;
    StaysWhole |= any_of(M.functions(), isTabulated);
  }

  Module &M;
  const bool KeepsDebugInfo;
  std::vector<GlobalValue *> Values;
  std::vector<Kind> Kinds;
  std::vector<uint32_t> Of; // The function of `WithFunction` and `OtherName`.
  std::vector<uint32_t> Tables; // `WithFunction`, at first.
  DenseMap<const GlobalValue *, uint32_t> Index;
  std::vector<bool> AreAliasees; // Aliases that are what they stand for, as the module was read.
  std::vector<bool> AreLocal;    // As the module was read.
  SmallPtrSet<const Function *, 4> FindSections; // By their ends, which only what is linked with the sections can.
  bool StaysWhole = false;       // Functions of it cannot be told apart from it.

  // Reads the body.
  Error read(Function &F) {
    if (Error Failed = F.materialize()) return Failed;
    if (!KeepsDebugInfo) stripDebugInfo(F);
    return Error::success();
  }

  // The module's compile units, without what belongs to no function. For parts that have functions alone.
  ArrayRef<DICompileUnit *> unitsOfFunctions() {
    if (!Units.empty()) return Units;
    for (DICompileUnit *Unit : M.debug_compile_units()) {
      Unit->replaceEnumTypes({}), Unit->replaceRetainedTypes({}), Unit->replaceGlobalVariables({});
      Unit->replaceImportedEntities({}), Unit->replaceMacros({});
      Units.push_back(Unit);
    }
    return Units;
  }

  // Whether parts that call it have a copy: no other module need have it, or its compiler relies on that.
  bool isInlinedAlways(const Function &F) const {
    bool IsMeant = F.hasFnAttribute(Attribute::AlwaysInline) || F.hasAvailableExternallyLinkage();
    return IsMeant && !F.isDeclaration() && !F.isInterposable() && !FindSections.count(&F);
  }

  // Replaces a definition that leaves by a declaration under its name, here.
  template <typename T> T *leave(uint32_t I, T *Definition, T *Declaration) {
    if (Definition->isInterposable()) mayBeAnother(*Declaration);
    Declaration->takeName(Definition);
    if (Definition->hasLocalLinkage()) Declaration->setVisibility(GlobalValue::HiddenVisibility), Declaration->setDSOLocal(true);
    Definition->replaceAllUsesWith(Declaration);
    Definition->removeFromParent();
    Values[I] = Declaration, Index[Declaration] = I;
    return Declaration;
  }

private:
  SmallVector<DICompileUnit *, 1> Units;
  AssemblyNames Assembly; // Of all bodies of which it concerns others.

  Kind kindOf(const Function &F) {
    if (F.isDeclarationForLinker() || F.isIntrinsic()) return kindOfDeclared(F);
    return isMoreThanItsCode(F) || AssemblyNames(F).usesAnyOf(Assembly) ? InData : OnCall;
  }

  // Assembly in a body may define a value that is declared here. The body is compiled with the variables then.
  Kind kindOfDeclared(const GlobalValue &G) {
    if (G.getName() == RootChain && definesRootChain(M)) return InData;
    if (!Assembly.defines(G.getName())) return Elsewhere;
    StaysWhole |= !Assembly.Symbols.lookup(G.getName()).IsGlobal;
    return InData;
  }

  Kind kindOf(const GlobalVariable &V, uint32_t I) {
    if (V.isDeclarationForLinker()) return kindOfDeclared(V);
    if (V.getSection() == "llvm.metadata") return Elsewhere;
    // Its section is bound to the function's.
    if (const MDNode *With = V.getMetadata(LLVMContext::MD_associated))
      if (auto *Other = dyn_cast_or_null<ValueAsMetadata>(With->getOperand(0).get()))
        if (auto *F = dyn_cast<Function>(Other->getValue()->stripPointerCasts())) toData(F);
    if (V.hasAppendingLinkage() || isUsedList(V)) return InData;
    const Function *With = nullptr;
    bool IsTable = true;
    forEachConstant(V, [&](const Constant &C) {
      auto *Address = dyn_cast<BlockAddress>(&C);
      if (!Address) return;
      IsTable &= !With || With == Address->getFunction();
      With = Address->getFunction();
      // Until the table turns out to be one function's alone.
      if (!IsTable || !V.hasLocalLinkage() || V.hasSection() || V.isThreadLocal()) IsTable = false, toData(With);
    });
    if (With && !IsTable) {
      forEachConstant(V, [&](const Constant &C) {
        if (auto *Address = dyn_cast<BlockAddress>(&C)) toData(Address->getFunction());
      });
      return InData;
    }
    if (With) return Tables.push_back(I), Of[I] = Index.lookup(With), WithFunction;
    return InData;
  }

  Kind kindOf(const GlobalAlias &A, uint32_t I) {
    AreAliasees[I] = isItsAliasee(A);
    StaysWhole |= isLostAsDeclaration(A);
    const auto *F = dyn_cast_or_null<Function>(A.getAliaseeObject());
    if (!F) return InData;
    uint32_t Function = Index.lookup(F);
    // Resolved through other aliases too.
    bool IsSame = A.getAliasee()->stripPointerCastsAndAliases() == F;
    if (IsSame && Kinds[Function] == OnCall) return Of[I] = Function, OtherName;
    toData(F);
    return InData;
  }

  // An indirect function whose resolver answers one function has the address of that function, which the object has to know.
  void answersToData(Function &Resolver) {
    if (Error Failed = Resolver.materialize()) return consumeError(std::move(Failed));
    for (const BasicBlock &Block : Resolver)
      if (auto *Return = dyn_cast<ReturnInst>(Block.getTerminator()); Return && Return->getReturnValue())
        if (auto *Answer = dyn_cast<Function>(Return->getReturnValue()->stripPointerCastsAndAliases())) toData(Answer);
  }

  void toData(const Function *F) {
    if (auto Found = Index.find(F); Found != Index.end() && Kinds[Found->second] == OnCall) Kinds[Found->second] = InData;
  }
};

void hide(GlobalValue &G) {
  G.setLinkage(GlobalValue::ExternalLinkage);
  G.setVisibility(GlobalValue::HiddenVisibility);
  G.setDSOLocal(true);
}

void becomeExternal(GlobalValue &G) {
  if (!G.hasLocalLinkage()) return;
  if (auto *Object = dyn_cast<GlobalObject>(&G)) Object->setComdat(nullptr);
  hide(G);
}

// Makes a part of what leaves the shell, and of declarations of what stays there.
class Part : public ValueMaterializer {
public:
  Part(Shell &From, StringRef Name) : From(From), To(std::make_unique<Module>(Name, From.M.getContext())) {
    To->setDataLayout(From.M.getDataLayout());
    To->setTargetTriple(From.M.getTargetTriple());
    if (const NamedMDNode *Flags = From.M.getModuleFlagsMetadata())
      for (const MDNode *Flag : Flags->operands()) To->getOrInsertModuleFlagsMetadata()->addOperand(const_cast<MDNode *>(Flag));
  }

  // With copies of what it may inline the part leaves in the shell what others may inline.
  Error take(uint32_t I, PartForm Made) {
    Form = Made;
    bool Inlines = Form != Alone;
    auto &F = *cast<Function>(From.Values[I]);
    if (Error Failed = From.read(F)) return Failed;
    takeUnits();
    if (Inlines) chooseCopies(F);
    bool IsOwn = !F.isInterposable();
    Function &Body = (Inlines && isCopied(F)) || From.isInlinedAlways(F) ? copy(I, F) : move(I, F);
    Body.setName(BodyPrefix + plainName(*From.Values[I]));
    Body.setComdat(nullptr);
    hide(Body);
    while (!(ToCopy.empty() && ToInitialize.empty()) && !Failed)
      if (!ToCopy.empty()) fill(ToCopy.pop_back_val());
      else initialize(ToInitialize.pop_back_val());
    if (Failed) return createStringError(*Failed);
    if (IsOwn) callDirectly(I, Body);
    return Form == BesideImage ? checkAddresses() : Error::success();
  }

  std::unique_ptr<Module> release() { return std::move(To); }

  Value *materialize(Value *V) override {
    auto *G = dyn_cast<GlobalValue>(V);
    if (!G || G->getParent() != &From.M) return nullptr;
    if (Value *Here = InPart.lookup(G)) return Here;
    Value *Here = represent(*G);
    InPart[G] = Here;
    return Here;
  }

private:
  void takeUnits() {
    if (!From.KeepsDebugInfo) return;
    for (DICompileUnit *Unit : From.unitsOfFunctions()) To->getOrInsertNamedMetadata("llvm.dbg.cu")->addOperand(Unit);
  }

  static StringRef plainName(const GlobalValue &G) {
    StringRef Name = G.getName();
    Name.consume_front("\1");
    return Name;
  }

  void chooseCopies(Function &F) {
    SmallVector<Function *, 8> Callers{&F};
    SmallPtrSet<Function *, 16> Seen{&F};
    for (unsigned Depth = 0; Depth != CopiedDepthMax; ++Depth) {
      SmallVector<Function *, 8> Found;
      for (Function *Caller : Callers)
        for (const Instruction &I : instructions(*Caller)) {
          auto *Call = dyn_cast<CallBase>(&I);
          auto *Called = Call ? dyn_cast<Function>(Call->getCalledOperand()->stripPointerCasts()) : nullptr;
          if (!Called || Called->isDeclaration() || !Seen.insert(Called).second) continue;
          // A damaged function fails when it is called.
          if (Error Failed = From.read(*Called)) { consumeError(std::move(Failed)); continue; }
          if (isCopied(*Called) && !From.FindSections.count(Called)) Copied.insert(Called), Found.push_back(Called);
        }
      Callers = std::move(Found);
    }
  }

  Function &move(uint32_t I, Function &F) {
    auto *Left = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, F.getAddressSpace(), "", &From.M);
    Left->copyAttributesFrom(&F);
    From.leave(I, &F, Left);
    To->getFunctionList().push_back(&F);
    ValueToValueMapTy Map;
    Map[&F] = &F;
    for (uint32_t T : From.Tables)
      if (From.Kinds[T] == WithFunction && From.Of[T] == I) moveTable(T, Map);
    RemapFunction(F, Map, RF_IgnoreMissingLocals | RF_ReuseAndMutateDistinctMDs, nullptr, this, &IsShared);
    return F;
  }

  void moveTable(uint32_t T, ValueToValueMapTy &Map) {
    auto &Table = *cast<GlobalVariable>(From.Values[T]);
    auto *Left = new GlobalVariable(From.M, Table.getValueType(), Table.isConstant(), GlobalValue::ExternalLinkage, nullptr);
    std::string Name = Table.getName().str();
    From.leave(T, &Table, Left);
    To->insertGlobalVariable(&Table);
    Table.setName(Name);
    becomeExternal(Table);
    Table.setMetadata(LLVMContext::MD_dbg, nullptr);
    InPart[Left] = &Table;
    Table.setInitializer(MapValue(Table.getInitializer(), Map, RF_None, nullptr, this));
  }

  Function &copy(uint32_t, Function &F) {
    auto *Copy = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, F.getAddressSpace(), "", To.get());
    fill({&F, Copy});
    return *Copy;
  }

  // Copies the body of the first to the second.
  void fill(std::pair<Function *, Function *> Pair) {
    auto [Source, Copy] = Pair;
    if (Error Unread = From.read(*Source)) {
      Failed = toString(std::move(Unread));
      return;
    }
    ValueToValueMapTy Map;
    auto Here = Copy->arg_begin();
    for (const Argument &A : Source->args()) Map[&A] = &*Here++;
    SmallVector<ReturnInst *, 8> Returns;
    auto Linkage = Copy->getLinkage();
    CloneFunctionAttributesInto(Copy, Source, Map, /*ModuleLevelChanges=*/true, nullptr, this);
    CloneFunctionMetadataInto(*Copy, *Source, Map, RF_None, nullptr, this, &IsShared);
    CloneFunctionBodyInto(*Copy, *Source, Map, RF_None, Returns, "", nullptr, nullptr, this, &IsShared);
    Copy->setLinkage(Linkage);
    Copy->setComdat(nullptr);
  }

  // A function of the file alone has an address in the image, and here another one, which code must not compare with it.
  Error checkAddresses() const {
    for (uint32_t I = 0; I != From.Values.size(); ++I) {
      auto *F = dyn_cast_or_null<Function>(InPart.lookup(From.Values[I]));
      if (F && From.AreLocal[I] && !all_of(F->uses(), isCalleeUse))
        return createStringError("it takes the address of `" + plainName(*F) + "`, which the image has elsewhere");
    }
    return Error::success();
  }

  // Whether no code can tell a constant from a copy of it.
  static bool isAnywhere(const GlobalVariable &V) {
    return V.isConstant() && V.hasLocalLinkage() && V.hasGlobalUnnamedAddr() && V.hasDefinitiveInitializer() && !V.hasSection() &&
           !V.isThreadLocal();
  }

  Value *copyOf(const GlobalVariable &V) {
    auto *Copy = new GlobalVariable(*To, V.getValueType(), true, GlobalValue::PrivateLinkage, nullptr, V.getName());
    Copy->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
    Copy->setAlignment(V.getAlign());
    ToInitialize.push_back({&V, Copy});
    return Copy;
  }

  void initialize(std::pair<const GlobalVariable *, GlobalVariable *> Pair) {
    ValueToValueMapTy Map;
    Pair.second->setInitializer(MapValue(Pair.first->getInitializer(), Map, RF_None, nullptr, this));
  }

  // The value that stands for `G` in this part.
  Value *represent(GlobalValue &G) {
    uint32_t I = From.Index.lookup(&G);
    if (auto *V = dyn_cast<GlobalVariable>(&G); V && Form == BesideImage && isAnywhere(*V)) return copyOf(*V);
    if (auto *A = dyn_cast<GlobalAlias>(&G); A && From.AreAliasees[I]) {
      ValueToValueMapTy Map;
      return MapValue(A->getAliasee(), Map, RF_None, nullptr, this);
    }
    auto *Called = dyn_cast<Function>(&G);
    GlobalValue &Declaration = Called ? declared(*Called, I) : declared(G);
    Declaration.setVisibility(G.getVisibility());
    Declaration.setDSOLocal(G.isDSOLocal() && !G.hasDefaultVisibility());
    if (G.hasExternalWeakLinkage()) Declaration.setLinkage(GlobalValue::ExternalWeakLinkage);
    else if (G.isInterposable() || isa<GlobalAlias>(G)) mayBeAnother(Declaration);
    if (G.hasLocalLinkage()) hide(Declaration);
    if (auto *V = dyn_cast<GlobalVariable>(&G); V && isKnown(*V)) {
      cast<GlobalVariable>(Declaration).setInitializer(const_cast<Constant *>(V->getInitializer()));
      Declaration.setLinkage(GlobalValue::AvailableExternallyLinkage);
    }
    if (Called && (Copied.count(Called) || From.isInlinedAlways(*Called))) {
      Declaration.setLinkage(GlobalValue::AvailableExternallyLinkage);
      ToCopy.push_back({Called, cast<Function>(&Declaration)});
    }
    // An image may lie far away.
    if (Form == BesideImage) Declaration.setVisibility(GlobalValue::DefaultVisibility), Declaration.setDSOLocal(false);
    return &Declaration;
  }

  Function &declared(const Function &F, uint32_t I) {
    auto *D = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, F.getAddressSpace(), F.getName(), To.get());
    D->setAttributes(F.getAttributes());
    D->setCallingConv(F.getCallingConv());
    // Of a mere name like `strdup` the optimizer would believe that it is the library's.
    if (From.Kinds[I] != Elsewhere) D->addFnAttr(Attribute::NoBuiltin);
    return *D;
  }

  // A variable, or what stands for an alias or ifunc.
  GlobalValue &declared(const GlobalValue &G) {
    if (auto *Type = dyn_cast<FunctionType>(G.getValueType()))
      return *Function::Create(Type, GlobalValue::ExternalLinkage, G.getAddressSpace(), G.getName(), To.get());
    auto *V = dyn_cast<GlobalVariable>(&G);
    auto *D = new GlobalVariable(*To, G.getValueType(), V && V->isConstant(), GlobalValue::ExternalLinkage, nullptr, G.getName(), nullptr,
                                 G.getThreadLocalMode(), G.getAddressSpace(), V && V->isExternallyInitialized());
    if (V) D->setAlignment(V->getAlign());
    if (V && V->getCodeModel()) D->setCodeModel(*V->getCodeModel());
    return *D;
  }

  // A constant that refers to nothing else: parts may know it, and all the same have one address for it.
  bool isKnown(const GlobalVariable &V) const {
    return V.isConstant() && V.hasDefinitiveInitializer() && isa<ConstantData>(V.getInitializer()) && !V.isThreadLocal() &&
           From.M.getDataLayout().getTypeAllocSize(V.getValueType()) <= KnownBytesMax;
  }

  // A function that calls itself need not go through its stub. Its address is the stub's all the same.
  void callDirectly(uint32_t I, Function &Body) {
    auto *Stub = dyn_cast_or_null<Function>(InPart.lookup(From.Values[I]));
    if (!Stub || Stub == &Body) return;
    Stub->replaceUsesWithIf(&Body, [&](Use &U) {
      auto *Call = dyn_cast<CallBase>(U.getUser());
      return Call && Call->isCallee(&U) && Call->getFunctionType() == Body.getFunctionType() && Call->getFunction() == &Body;
    });
    if (Stub->use_empty()) InPart.erase(From.Values[I]), Stub->eraseFromParent();
  }

  Shell &From;
  std::unique_ptr<Module> To;
  DenseMap<const GlobalValue *, Value *> InPart;
  SmallPtrSet<const Function *, 8> Copied; // As far as they are referred to.
  SmallVector<std::pair<Function *, Function *>, 4> ToCopy;
  SmallVector<std::pair<const GlobalVariable *, GlobalVariable *>, 4> ToInitialize;
  PartForm Form = Alone;
  std::optional<std::string> Failed;
};

// Leaves the variables, and the functions that go with them.
Error keepData(Shell &From) {
  Module &M = From.M;
  for (uint32_t I = 0; I != From.Values.size(); ++I)
    if (auto *F = dyn_cast<Function>(From.Values[I]); F && From.Kinds[I] == InData)
      if (Error Failed = F->materialize()) return Failed;
  std::set<const GlobalValue *> Own;
  for (uint32_t I = 0; I != From.Values.size(); ++I)
    if (From.Kinds[I] == InData) Own.insert(From.Values[I]);
  GlobalVariable *Annotations = M.getGlobalVariable("llvm.global.annotations");
  for (uint32_t I = 0; I != From.Values.size(); ++I)
    if (isUsedList(*From.Values[I]) || From.Values[I] == Annotations) From.Kinds[I] = Elsewhere;
  for (StringRef List : {"llvm.used", "llvm.compiler.used"}) takeUsed(M, List, Own);
  if (Annotations) Annotations->eraseFromParent(); // No code is made of them.
  // Aliases first: what they stand for is seen by its definition.
  for (uint32_t I = From.Values.size(); I-- != 0;) {
    GlobalValue &G = *From.Values[I];
    switch (From.Kinds[I]) {
    case OnCall: case WithFunction: case OtherName: {
      bool IsLocal = G.hasLocalLinkage();
      std::string Name = G.getName().str();
      declare(G);
      if (GlobalValue *Declared = M.getNamedValue(Name); Declared && IsLocal) hide(*Declared);
      break;
    }
    case InData: becomeExternal(G); break;
    case Elsewhere: break;
    }
  }
  if (Error Failed = M.materializeAll()) return Failed;
  if (!From.KeepsDebugInfo) StripDebugInfo(M);
  dropUnused(M);
  return Error::success();
}

// The functions that are compiled by themselves and that others can get at, or what others can get at refers to. The rest goes when a
// module is optimized as a whole.
Error reach(Shell &From, std::vector<uint32_t> &Reached) {
  SmallPtrSet<const Value *, 32> Seen;
  SmallVector<GlobalValue *, 32> Work;
  auto Take = [&](const Value &V) {
    if (auto *G = dyn_cast<GlobalValue>(&V); G && Seen.insert(G).second) Work.push_back(const_cast<GlobalValue *>(G));
  };
  auto TakeAllOf = [&](const User &Whole) {
    forEachConstant(Whole, [&](const Constant &C) {
      Take(C);
      if (auto *Address = dyn_cast<BlockAddress>(&C)) Take(*Address->getFunction());
    });
  };
  for (GlobalValue *G : From.Values)
    if (!G->isDeclarationForLinker() && !G->hasLocalLinkage()) Take(*G);
  while (!Work.empty()) {
    GlobalValue &G = *Work.pop_back_val();
    if (uint32_t I = From.Index.lookup(&G); From.Kinds[I] == OnCall) Reached.push_back(I);
    TakeAllOf(G);
    auto *F = dyn_cast<Function>(&G);
    if (!F) continue;
    if (Error Failed = F->materialize()) return Failed;
    for (const Instruction &I : instructions(*F)) TakeAllOf(I);
  }
  return Error::success();
}

char *messageOf(Error Failed) { return LLVMCreateMessage(toString(std::move(Failed)).c_str()); }

} // namespace

extern "C" {

// The values of a module that was read lazily, with their parts. Refers to the module, and is to be disposed of before that.
void *uruk_llvm_shell(LLVMModuleRef Handle, bool KeepsDebugInfo) { return new Shell(*unwrap(Handle), KeepsDebugInfo); }

void uruk_llvm_dispose_shell(void *Handle) { delete static_cast<Shell *>(Handle); }

// Passes each value to `Sink`, by number: name, kind, the number of the function it goes with, and its `ValueBits`. Returns whether the
// module has to stay whole.
bool uruk_llvm_outline(void *Handle, void (*Sink)(void *, const char *, size_t, uint32_t, uint32_t, uint32_t), void *Data) {
  Shell &S = *static_cast<Shell *>(Handle);
  for (uint32_t I = 0; I != S.Values.size(); ++I) {
    StringRef Name = S.Values[I]->getName();
    Name.consume_front("\1");
    const GlobalValue &G = *S.Values[I];
    uint32_t Bits = 0;
    if (G.hasLocalLinkage()) Bits |= Local;
    if (G.getValueType()->isFunctionTy()) Bits |= Callable;
    if (G.isThreadLocal()) Bits |= ThreadLocal;
    // The linker may never need a definition that is only there to be inlined.
    if (G.isDeclaration() && !G.hasExternalWeakLinkage() && S.Kinds[I] == Elsewhere) Bits |= Undefined;
    if (auto *F = dyn_cast<Function>(&G); F && hasAddressesTaken(*F)) Bits |= Once;
    if (auto *V = dyn_cast<GlobalVariable>(&G); V && V->isConstant()) Bits |= NeverWritten;
    Sink(Data, Name.data(), Name.size(), S.Kinds[I], S.Of[I], Bits);
  }
  return S.StaysWhole;
}

// Reads a function, and says how many instructions it has, how deep its loops are, and those that call nothing. Answers a message if it
// cannot be read.
char *uruk_llvm_function_shape(void *Handle, uint32_t Number, uint32_t *Instructions, uint32_t *LoopDepth,
                                uint32_t *TightLoopDepth) {
  auto &F = *cast<Function>(static_cast<Shell *>(Handle)->Values[Number]);
  if (Error Failed = static_cast<Shell *>(Handle)->read(F)) return messageOf(std::move(Failed));
  *Instructions = F.getInstructionCount();
  std::tie(*LoopDepth, *TightLoopDepth) = loopDepths(F);
  return nullptr;
}

// A module of the function with this number, in the shell's context, called `Name`, with what a `PartForm` says besides. Answers null with a
// message if it cannot be read, or has no such form.
LLVMModuleRef uruk_llvm_take_function(void *Handle, uint32_t Number, uint32_t Form, const char *Name, size_t Size, char **Message) {
  Part Taken(*static_cast<Shell *>(Handle), StringRef(Name, Size));
  if (Error Failed = Taken.take(Number, PartForm(Form))) {
    *Message = messageOf(std::move(Failed));
    return nullptr;
  }
  return wrap(Taken.release().release());
}

// Makes the shell's module the one of its variables. Answers a message if it cannot be read.
char *uruk_llvm_keep_data(void *Handle) {
  Error Failed = keepData(*static_cast<Shell *>(Handle));
  return Failed ? messageOf(std::move(Failed)) : nullptr;
}

// Tells `Sink` of each function that is compiled by itself and that something else can get at. Answers a message if one cannot be read.
char *uruk_llvm_reach(void *Handle, void (*Sink)(void *, uint32_t), void *Data) {
  std::vector<uint32_t> Reached;
  if (Error Failed = reach(*static_cast<Shell *>(Handle), Reached)) return messageOf(std::move(Failed));
  for (uint32_t I : Reached) Sink(Data, I);
  return nullptr;
}

} // extern "C"
