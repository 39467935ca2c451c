// Divides a module: which part each definition belongs to. Called from `ffi.rs` alone. `part.cpp` takes the parts out.
//
// Kept together: COMDATs, aliases and ifuncs with their targets, users of block addresses, sections that were requested by name, assembly
// that defines with assembly that uses it. Part 0 has the module's assembly and the symbols it mentions, the functions that run at start
// and end, and those of which code generation makes tables. README.md has all facts.

#include "parts.h"
#include <llvm-c/Core.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Operator.h>
#include <llvm/Support/xxhash.h>

using namespace llvm;

namespace {

// Constants up to this size are copied to each part that reads them.
const uint64_t CopiedBytesMax = 256;
// Functions up to this size are looked into by other parts, so many calls away.
const uint64_t ImportedInstructionsMax = 60;
const unsigned ImportedDepthMax = 3;

class Division {
public:
  Division(Module &M, unsigned Parts) : M(M), Parts(Parts), Values(valuesInOrder(M)), Root(Values.size()) {
    for (unsigned I = 0; I != Values.size(); ++I) Index[Values[I]] = I;
    Leader.resize(Values.size() + 1), Weight.resize(Values.size() + 1);
    for (unsigned I = 0; I != Leader.size(); ++I) Leader[I] = I;
    References.resize(Values.size()), PartOf.assign(Values.size(), 0);
  }

  void read() {
    readMentions(M.getModuleInlineAsm(), Root);
    for (unsigned I = 0; I != Values.size(); ++I) readReferences(I);
    joinAssembly();
    for (unsigned I = 0; I != Values.size(); ++I) keepTogether(I);
    for (unsigned User = 0; User != Values.size(); ++User)
      for (unsigned Used : References[User])
        // Assembly knows it by its name, which stays as it is.
        if ((Mentioned.count(Used) && isBoundToItsName(*Values[Used])) || isBoundToItsUsers(Used)) join(User, Used);
  }

  // Parts of equal size, in the order of the module: functions that lie together stay together.
  void assignInOrder() {
    uint64_t Total = 0, Before = weightOf(Root);
    std::vector<unsigned> Functions = leadersOfFunctions();
    for (unsigned L : Functions) Total += weightOf(L);
    std::vector<unsigned> PartOfLeader(Leader.size());
    unsigned Part = 0;
    for (unsigned L : Functions) {
      if (L == find(Root)) continue;
      uint64_t Own = weightOf(L);
      while (Part + 1 < Parts && (Before + Own / 2) * Parts > Total * (Part + 1)) ++Part;
      PartOfLeader[L] = Part;
      Before += Own;
    }
    assign(PartOfLeader);
  }

  // By names, so that a change of one function moves no other one.
  void assignByName() {
    std::vector<unsigned> PartOfLeader(Leader.size());
    std::vector<StringRef> Name(Leader.size());
    for (unsigned I = 0; I != Values.size(); ++I) {
      StringRef &Least = Name[find(I)], Own = Values[I]->getName();
      if (isa<Function>(Values[I]) && !Own.empty() && (Least.empty() || Own < Least)) Least = Own;
    }
    for (unsigned L = 0; L != Leader.size(); ++L) PartOfLeader[L] = xxh3_64bits(Name[L]) % Parts;
    assign(PartOfLeader);
  }

  // Small functions that a part calls and does not have.
  void import() {
    for (unsigned Part = 0; Part != Parts; ++Part) {
      std::vector<unsigned> Wave, Next; // So many calls away.
      std::vector<bool> Seen(Values.size());
      for (unsigned I = 0; I != Values.size(); ++I)
        if (isa<Function>(Values[I]) && PartOf[I] == Part && !Values[I]->isDeclaration()) Wave.push_back(I);
      for (unsigned Depth = 0; !Wave.empty(); ++Depth, Wave = std::move(Next), Next.clear())
        for (unsigned User : Wave)
          for (unsigned Used : References[User])
            if (!Seen[Used] && PartOf[Used] != Part && (isInlinedAlways(Used) || (Depth < ImportedDepthMax && isImportable(Used)))) {
              Seen[Used] = true;
              Next.push_back(Used);
              Imports.push_back({Used, Part});
            }
    }
  }

  // Makes known to all parts what more than one of them needs.
  void publish() {
    std::vector<bool> IsShared(Values.size());
    SmallVector<unsigned, 16> Work;
    auto share = [&](unsigned Used, unsigned Part) {
      if (PartOf[Used] == Part || PartOf[Used] == Everywhere || IsShared[Used]) return;
      IsShared[Used] = true;
      Work.push_back(Used);
    };
    auto uses = [&](unsigned User, unsigned Part) {
      for (unsigned Used : References[User]) share(Used, Part);
      // A part that has no alias refers to what the alias stands for, under that name.
      while (!Work.empty())
        if (unsigned I = Work.pop_back_val(); isa<GlobalAlias>(Values[I]) && isItsAliasee(cast<GlobalAlias>(*Values[I])))
          for (unsigned Aliasee : References[I]) share(Aliasee, Part);
    };
    for (unsigned User = 0; User != Values.size(); ++User)
      if (PartOf[User] != Everywhere) uses(User, PartOf[User]);
    for (auto [User, Part] : Imports) uses(User, Part);
    for (unsigned I = 0; I != Values.size(); ++I)
      if (IsShared[I] && !Values[I]->isDeclaration()) publish(*Values[I], I);
  }

  unsigned partsInUse() const {
    std::vector<bool> InUse(Parts);
    for (unsigned I = 0; I != Values.size(); ++I)
      if (isa<Function>(Values[I]) && !Values[I]->isDeclaration() && PartOf[I] != Everywhere) InUse[PartOf[I]] = true;
    return count(InUse, true);
  }

  Module &M;
  const unsigned Parts;
  const std::vector<GlobalValue *> Values;
  std::vector<uint32_t> PartOf;
  std::vector<std::pair<unsigned, unsigned>> Imports;

private:
  unsigned find(unsigned I) {
    while (Leader[I] != I) I = Leader[I] = Leader[Leader[I]];
    return I;
  }

  void join(unsigned A, unsigned B) {
    A = find(A), B = find(B);
    if (A != B) Leader[std::max(A, B)] = std::min(A, B), Weight[std::min(A, B)] += Weight[std::max(A, B)];
  }

  uint64_t weightOf(unsigned I) { return Weight[find(I)]; }

  // A symbol that assembly mentions by name cannot have another name.
  static bool isBoundToItsName(const GlobalValue &G) { return G.hasLocalLinkage() || G.isDeclaration(); }

  // Whether other parts would take the value for another one.
  bool isBoundToItsUsers(unsigned I) const {
    auto *A = dyn_cast<GlobalAlias>(Values[I]);
    return A && isLostAsDeclaration(*A);
  }

  // Assembly that defines something, with the assembly that uses it.
  void joinAssembly() {
    std::vector<std::pair<unsigned, AssemblyNames>> Assemblies;
    StringMap<unsigned> DefinedBy;
    auto Take = [&](unsigned From, AssemblyNames Names) {
      for (auto &Symbol : Names.Symbols)
        if (Symbol.second.IsDefined) join(From, DefinedBy.try_emplace(Symbol.first(), From).first->second), Labelled.insert(From);
      if (!Names.Words.empty()) Assemblies.emplace_back(From, std::move(Names));
    };
    Take(Root, AssemblyNames(M.getModuleInlineAsm()));
    for (unsigned I = 0; I != Values.size(); ++I)
      if (auto *F = dyn_cast<Function>(Values[I])) Take(I, AssemblyNames(*F));
    if (DefinedBy.empty()) return;
    for (auto &[From, Names] : Assemblies)
      for (auto &Word : Names.Words)
        if (auto Found = DefinedBy.find(Word.first()); Found != DefinedBy.end()) join(From, Found->second);
  }

  void readMentions(StringRef Assembly, unsigned From) {
    auto isPartOfName = [](char C) { return isAlnum(C) || StringRef("_.$@").contains(C) || (C & 0x80); };
    while (!Assembly.empty()) {
      StringRef Word = Assembly.take_while(isPartOfName);
      Assembly = Assembly.drop_front(std::max<size_t>(Word.size(), 1));
      const GlobalValue *G = Word.empty() ? nullptr : M.getNamedValue(Word);
      if (!G) continue;
      Mentioned.insert(Index[G]);
      if (isBoundToItsName(*G) || From == Root) join(From, Index[G]);
    }
  }

  void readReferences(unsigned From) {
    GlobalValue &G = *Values[From];
    SmallPtrSet<const Constant *, 16> Seen;
    SmallVector<const Constant *, 16> Work;
    auto take = [&](const Value *Operand) {
      if (auto *Asm = dyn_cast<InlineAsm>(Operand)) readMentions(Asm->getAsmString(), From);
      if (auto *C = dyn_cast<Constant>(Operand); C && !isa<ConstantData>(C) && Seen.insert(C).second) Work.push_back(C);
    };
    if (isUsedList(G) || G.getName() == "llvm.global.annotations") return;
    if (isNameOfTable(G.getName())) join(From, Root);
    if (auto *F = dyn_cast<Function>(&G)) {
      if (F->hasGC() || isTabulated(*F)) join(From, Root);
      for (const Instruction &I : instructions(*F))
        for (const Value *Operand : I.operand_values()) take(Operand);
      Weight[From] = F->isDeclaration() ? 0 : F->getInstructionCount() + 5;
    }
    for (const Value *Operand : cast<User>(G).operand_values()) take(Operand);
    while (!Work.empty()) {
      const Constant *C = Work.pop_back_val();
      if (auto *Address = dyn_cast<BlockAddress>(C)) {
        join(From, Index[Address->getFunction()]);
        HasBlockAddresses.insert(Index[Address->getFunction()]);
      }
      auto *Used = dyn_cast<GlobalValue>(C);
      auto *Called = dyn_cast<Function>(C);
      if (Used && (isNameOfTable(Used->getName()) || (Called && isTabulated(*Called)))) join(From, Root);
      if (Used)
        References[From].push_back(Index[Used]);
      else
        for (const Value *Operand : C->operand_values()) take(Operand);
    }
  }

  void keepTogether(unsigned I) {
    GlobalValue &G = *Values[I];
    if (isa<GlobalAlias, GlobalIFunc>(G))
      for (unsigned Target : References[I]) join(I, Target);
    if (G.hasAppendingLinkage() && !isUsedList(G) && G.getName() != "llvm.global.annotations") {
      join(I, Root);
      for (unsigned Run : References[I]) join(Root, Run);
    }
    auto *Object = dyn_cast<GlobalObject>(&G);
    if (!Object || Object->isDeclaration()) return;
    if (const Comdat *Group = Object->getComdat()) join(Comdats.try_emplace(Group, I).first->second, I);
    if (Object->hasSection() && !Object->hasAppendingLinkage())
      join(Sections.try_emplace(Object->getSection(), I).first->second, I);
    if (MDNode *With = Object->getMetadata(LLVMContext::MD_associated))
      if (auto *Value = dyn_cast_or_null<ValueAsMetadata>(With->getOperand(0).get()))
        if (auto *Other = dyn_cast<GlobalValue>(Value->getValue()->stripPointerCasts())) join(I, Index[Other]);
  }

  std::vector<unsigned> leadersOfFunctions() {
    std::vector<unsigned> Leaders;
    std::vector<bool> Seen(Leader.size());
    for (unsigned I = 0; I != Values.size(); ++I)
      if (isa<Function>(Values[I]) && !Values[I]->isDeclaration() && !Seen[find(I)])
        Seen[find(I)] = true, Leaders.push_back(find(I));
    return Leaders;
  }

  // Whether one copy cannot be told from another: its contents are only read, and its address goes nowhere.
  static bool isOnlyRead(const Value &Pointer) {
    return all_of(Pointer.uses(), [](const Use &U) {
      const User *By = U.getUser();
      if (isa<LoadInst>(By)) return true;
      if (auto *Transfer = dyn_cast<MemTransferInst>(By)) return U.getOperandNo() == 1 && !Transfer->isVolatile();
      return isa<GEPOperator>(By) && U.getOperandNo() == 0 && isOnlyRead(*By);
    });
  }

  bool isCopied(unsigned I) {
    auto *V = dyn_cast<GlobalVariable>(Values[I]);
    return V && V->hasLocalLinkage() && V->isConstant() && V->hasGlobalUnnamedAddr() && V->hasInitializer() &&
           !V->isThreadLocal() && !V->hasSection() && !V->hasComdat() && References[I].empty() && !Mentioned.count(I) &&
           !V->hasMetadata(LLVMContext::MD_associated) && isOnlyRead(*V) &&
           M.getDataLayout().getTypeAllocSize(V->getValueType()) <= CopiedBytesMax;
  }

  void assign(std::vector<unsigned> &PartOfLeader) {
    PartOfLeader[find(Root)] = 0;
    std::vector<bool> HasFunction(Leader.size()), IsPlaced(Leader.size());
    for (unsigned L : leadersOfFunctions()) HasFunction[L] = IsPlaced[L] = true;
    HasFunction[find(Root)] = IsPlaced[find(Root)] = true;
    // A variable goes to the first that uses it; one that is used by variables, behind those.
    for (bool Changed = true; Changed;) {
      Changed = false;
      for (unsigned User = 0; User != Values.size(); ++User)
        if (IsPlaced[find(User)])
          for (unsigned Used : References[User])
            if (!IsPlaced[find(Used)]) {
              PartOfLeader[find(Used)] = PartOfLeader[find(User)];
              IsPlaced[find(Used)] = Changed = true;
            }
    }
    for (unsigned I = 0; I != Values.size(); ++I) {
      bool IsNobodys = isUsedList(*Values[I]) || isCopied(I) || Values[I]->hasAvailableExternallyLinkage();
      PartOf[I] = IsNobodys ? Everywhere : IsPlaced[find(I)] ? PartOfLeader[find(I)] : 0;
    }
  }

  // Whether another part may have a copy of the function.
  const Function *copied(unsigned I) {
    auto *F = dyn_cast<Function>(Values[I]);
    bool IsCopied = F && !F->isDeclaration() && !F->isInterposable() && !F->isPresplitCoroutine() &&
                    !HasBlockAddresses.count(I) && !Mentioned.count(I) && !Labelled.count(I) &&
                    none_of(References[I], [&](unsigned Used) { return isBoundToItsUsers(Used); });
    return IsCopied ? F : nullptr;
  }

  // No other module need have such a function, so each caller has a copy.
  bool isInlinedAlways(unsigned I) {
    const Function *F = copied(I);
    return F && (F->hasFnAttribute(Attribute::AlwaysInline) || F->hasAvailableExternallyLinkage());
  }

  bool isImportable(unsigned I) {
    const Function *F = copied(I);
    return F && !F->hasFnAttribute(Attribute::NoInline) && !F->hasOptNone() && !F->isVarArg() &&
           F->getInstructionCount() <= ImportedInstructionsMax;
  }

  // A name that the base and the other versions have not.
  static std::string nameOf(const GlobalValue &G, unsigned Number) {
    std::string Name = nameInVersion(G, Number);
    const NamedMDNode *Facts = versionFacts(*G.getParent());
    if (!Facts) return Name;
    std::string Behind = ("@" + cast<MDString>(Facts->getOperand(1)->getOperand(0))->getString()).str();
    return StringRef(Name).ends_with(Behind) ? Name : Name + Behind;
  }

  // Texts are numbered in the order of the source, and an edit of one function would give others' texts other names.
  static std::string nameInVersion(const GlobalValue &G, unsigned Number) {
    auto *V = dyn_cast<GlobalVariable>(&G);
    auto *Text = V && V->hasPrivateLinkage() && V->isConstant() ? dyn_cast<ConstantDataSequential>(V->getInitializer()) : nullptr;
    if (Text) return utohexstr(xxh3_64bits(Text->getRawDataValues()));
    return G.hasName() ? G.getName().str() : std::to_string(Number);
  }

  static void publish(GlobalValue &G, unsigned Number) {
    if (G.hasLocalLinkage() || !G.hasName()) {
      G.setName(LocalPrefix + nameOf(G, Number));
      G.setLinkage(GlobalValue::ExternalLinkage);
      G.setVisibility(GlobalValue::HiddenVisibility);
      G.setDSOLocal(true);
    } else if (G.hasLinkOnceLinkage()) {
      G.setLinkage(G.hasLinkOnceODRLinkage() ? GlobalValue::WeakODRLinkage : GlobalValue::WeakAnyLinkage);
    }
  }

  const unsigned Root; // Stands for what is in part 0 for certain.
  DenseMap<const GlobalValue *, unsigned> Index;
  std::vector<unsigned> Leader;
  std::vector<uint64_t> Weight;
  std::vector<SmallVector<unsigned, 8>> References;
  DenseSet<unsigned> Mentioned, HasBlockAddresses, Labelled;
  DenseMap<const Comdat *, unsigned> Comdats;
  StringMap<unsigned> Sections;
};

} // namespace

extern "C" {

// Divides the module into `Parts` and tells `Sink` the part of each value, in the order of `valuesInOrder`, and which functions
// are copied to which part besides, as pairs. Answers in how many parts there are functions: with one, nothing was changed, as
// where the module has a name of parts itself.
unsigned uruk_llvm_divide(LLVMModuleRef Handle, unsigned Parts, bool ByName,
                          void (*Sink)(void *, const uint32_t *, size_t, const uint32_t *, size_t), void *Data) {
  if (hasNameOfParts(*unwrap(Handle))) return 1;
  Division Divided(*unwrap(Handle), Parts);
  Divided.read();
  if (ByName) Divided.assignByName();
  else Divided.assignInOrder();
  unsigned InUse = Divided.partsInUse();
  if (InUse < 2) return InUse;
  if (ByName) Divided.import();
  Divided.publish();
  std::vector<uint32_t> Imports;
  for (auto [Function, Part] : Divided.Imports) Imports.push_back(Function), Imports.push_back(Part);
  Sink(Data, Divided.PartOf.data(), Divided.PartOf.size(), Imports.data(), Imports.size());
  return InUse;
}

} // extern "C"
