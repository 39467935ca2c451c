// Symbols and words of a piece of assembly: a reader that knows labels, sections and the directives that define.

#pragma once

#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Module.h>

using namespace llvm;

namespace {

// Facts about a symbol that assembly defines.
struct AssemblySymbol {
  bool IsDefined = false, IsGlobal = false, IsWeak = false, IsHidden = false, IsInCode = true, IsThreadLocal = false, IsLocal = false;
};

// Whether a linker gives the ends of sections called `Name` names of their own, `__start_Name` and `__stop_Name`.
inline bool isIdentifier(StringRef Name) {
  return !Name.empty() && !isDigit(Name[0]) && all_of(Name, [](char C) { return isAlnum(C) || C == '_'; });
}

inline bool isEndOfSections(StringRef Name) { return Name.starts_with("__start_") || Name.starts_with("__stop_"); }

class AssemblyNames {
public:
  AssemblyNames() = default;
  explicit AssemblyNames(StringRef Text) { read(Text); }
  explicit AssemblyNames(const Function &F) { read(F); }

  // Labels, symbols that are set, and macros. Numbered labels (`1:`) are local to their assembly.
  StringMap<AssemblySymbol> Symbols;
  // All words that may be names.
  StringSet<> Words;
  // Sections that are entered by their names.
  StringSet<> Sections;

  void read(StringRef Text) {
    Section = {}, Before = {}, Pushed.clear();
    std::string Plain;
    for (StringRef Rest = Text; !Rest.empty();) {
      StringRef Line;
      std::tie(Line, Rest) = Rest.split('\n');
      // Operands of inline assembly are no comments.
      Plain = Line.split('#').first.split("//").first.str();
      SmallVector<StringRef, 4> Statements;
      StringRef(Plain).split(Statements, ';');
      for (StringRef Statement : Statements) readStatement(Statement);
    }
  }

  // All assembly in the body of a function, as far as that was read.
  void read(const Function &F) {
    for (const Instruction &I : instructions(F))
      if (auto *Call = dyn_cast<CallBase>(&I))
        if (auto *Asm = dyn_cast<InlineAsm>(Call->getCalledOperand())) read(Asm->getAsmString());
  }

  bool defines(StringRef Name) const {
    auto Found = Symbols.find(Name);
    return Found != Symbols.end() && Found->second.IsDefined;
  }

  bool definesAny() const {
    return any_of(Symbols, [](const auto &Symbol) { return Symbol.second.IsDefined; });
  }

  // Whether it says something of sections that other files have too.
  bool sharesSections() const {
    return any_of(Sections, [](const auto &Section) { return isIdentifier(Section.first()); }) ||
           any_of(Words, [](const auto &Word) { return isEndOfSections(Word.first()); });
  }

  bool usesAnyOf(const AssemblyNames &Others) const {
    return any_of(Words, [&](const auto &Word) { return Others.defines(Word.first()); });
  }

private:
  struct SectionKind {
    bool IsCode = true, IsThreadLocal = false;
  };
  SectionKind Section, Before;
  SmallVector<SectionKind, 4> Pushed;

  static bool isPartOfName(char C) { return isAlnum(C) || StringRef("_.$@").contains(C) || (C & 0x80); }

  static StringRef takeWord(StringRef &Text) {
    Text = Text.ltrim();
    StringRef Word;
    if (Text.consume_front("\"")) std::tie(Word, Text) = Text.split('"');
    else Word = Text.take_while(isPartOfName), Text = Text.drop_front(Word.size());
    return Word;
  }

  static bool isName(StringRef Word) { return !Word.empty() && !isDigit(Word[0]) && Word[0] != '$' && Word != "."; }

  void define(StringRef Name) {
    if (!isName(Name)) return;
    AssemblySymbol &Symbol = Symbols[Name];
    Symbol.IsDefined = true, Symbol.IsInCode = Section.IsCode, Symbol.IsThreadLocal = Section.IsThreadLocal;
  }

  // That it is tentative is known to the object alone.
  void defineCommon(StringRef Name, bool IsGlobal) {
    if (!isName(Name)) return;
    define(Name);
    AssemblySymbol &Symbol = Symbols[Name];
    Symbol.IsGlobal |= IsGlobal && !Symbol.IsLocal, Symbol.IsInCode = Symbol.IsThreadLocal = false;
  }

  void readStatement(StringRef Text) {
    for (StringRef Rest = Text; !Rest.empty();) {
      StringRef Word = takeWord(Rest);
      if (isName(Word)) Words.insert(Word);
      else if (Word.empty()) Rest = Rest.drop_front(std::min<size_t>(1, Rest.size()));
    }
    StringRef First = takeWord(Text);
    while (Text.consume_front(":")) define(First), First = takeWord(Text);
    Text = Text.ltrim();
    if (Text.starts_with("=")) define(First);
    else if (First.starts_with(".")) readDirective(First, Text);
  }

  void readDirective(StringRef Directive, StringRef Operands) {
    auto EachName = [&](auto Change) {
      SmallVector<StringRef, 4> Names;
      Operands.split(Names, ',');
      for (StringRef Name : Names)
        if (StringRef Word = takeWord(Name); isName(Word)) Change(Symbols[Word]);
    };
    auto Enter = [&](SectionKind Entered) { Before = Section, Section = Entered; };
    if (Directive == ".globl" || Directive == ".global") EachName([](AssemblySymbol &S) { S.IsGlobal = true; });
    else if (Directive == ".weak") EachName([](AssemblySymbol &S) { S.IsGlobal = S.IsWeak = true; });
    else if (Directive == ".hidden" || Directive == ".internal") EachName([](AssemblySymbol &S) { S.IsHidden = true; });
    else if (is_contained({".set", ".equ", ".equiv", ".macro"}, Directive)) define(takeWord(Operands));
    else if (Directive == ".comm" || Directive == ".lcomm") defineCommon(takeWord(Operands), Directive == ".comm");
    else if (Directive == ".local") EachName([](AssemblySymbol &S) { S.IsLocal = true; });
    else if (Directive == ".text") Enter({true, false});
    else if (Directive == ".data" || Directive == ".bss") Enter({false, false});
    else if (Directive == ".section") Enter(sectionOf(Operands));
    else if (Directive == ".pushsection") Pushed.push_back(Section), Enter(sectionOf(Operands));
    else if (Directive == ".popsection" && !Pushed.empty()) Section = Pushed.pop_back_val();
    else if (Directive == ".previous") std::swap(Section, Before);
  }

  SectionKind sectionOf(StringRef Operands) {
    StringRef Name = takeWord(Operands), Flags;
    Sections.insert(Name);
    if (Operands.ltrim(" \t,").starts_with("\"")) Operands = Operands.ltrim(" \t,"), Flags = takeWord(Operands);
    bool IsCode = Name == ".text" || Name.starts_with(".text.") || Name == ".init" || Name == ".fini" || Flags.contains('x');
    return {IsCode, Name.starts_with(".tdata") || Name.starts_with(".tbss") || Flags.contains('T')};
  }
};

// Whether a symbol is an end of all sections of one name. The linker knows it of the sections that it links together.
inline bool isDeclaredEndOfSections(const GlobalValue &G) { return G.isDeclaration() && isEndOfSections(G.getName()); }

// A variable that code generation defines for functions whose garbage collector is "shadow-stack".
const char *const RootChain = "llvm_gc_root_chain";

inline bool definesRootChain(const Module &M) {
  return any_of(M, [](const Function &F) { return F.hasGC() && F.getGC() == "shadow-stack" && !F.isDeclarationForLinker(); });
}

} // namespace
