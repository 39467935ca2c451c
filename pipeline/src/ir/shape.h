// The shape of a module: all of it but the addresses of a process and the names of its definitions. See `shape.rs` for the rules and why
// they are sound. `shape.cpp` reads a shape off a module, and leaves the module as it is; `shape_copy.cpp` gives a copy that shape.

#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Module.h>
#include <map>
#include <string>
#include <vector>

namespace shape {

// Linux puts the heap, libraries and position-independent executables there. A number in the range that is no address is treated alike.
inline bool isAddress(uint64_t Value) { return Value >= 0x5500'0000'0000 && Value < uint64_t(1) << 47; }

// Names of a shape begin so. A module that has such names has no shape.
constexpr llvm::StringLiteral Prefix = "uruk.";

// Whether a constant in this place of an instruction may become a value that is loaded.
bool mayBeLoaded(const llvm::Instruction &I, const llvm::Use &U);

// An alignment that passes may have read off an address is not trusted: the one that the type has anyway.
llvm::Align capped(llvm::Align Now, llvm::Type *Type, const llvm::DataLayout &Layout);
// The same for what is copied or filled: of a word at most.
llvm::MaybeAlign capped(llvm::MaybeAlign Now);

// Whether a definition gets a name of the shape.
inline bool isDefinition(const llvm::GlobalValue &G) { return !G.isDeclarationForLinker(); }

class Reader {
public:
  explicit Reader(llvm::Module &M) : M(M) {}

  // Reads the shape. Answers false if the module has none: something in it is unknown here, and `Why` says it.
  bool read();

  // Why the module has no shape.
  std::string Why;
  // The name of the global that the byte of the form at `At` tells of, or what else it is about.
  std::string subject(size_t At) const;

  // The form of the module as bytes: two modules with the same bytes have the same shape.
  llvm::SmallVector<char, 0> Text;
  // The globals that count, in the order in which the definitions that others can see lead to them.
  llvm::SetVector<llvm::GlobalValue *> Order;
  // The addresses in the table.
  std::vector<uint64_t> Table;

  // Whether the constant has an address in it that can be loaded.
  bool hasAddress(const llvm::Constant *C);
  // The place in the table of the address from which `Value` is found, and the distance.
  std::pair<unsigned, uint64_t> place(uint64_t Value);
  // The address that a variable of the module has as its value, or 0.
  uint64_t addressIn(const llvm::GlobalVariable &V) const;

private:
  llvm::Module &M;
  bool Known = true;
  // The global that is being read, and where each begins in the form.
  const llvm::GlobalValue *Current = nullptr;
  std::vector<size_t> Begins;
  unsigned Depth = 0;
  // Each address, and the lowest of those that lie close together.
  std::map<uint64_t, uint64_t> Bases;
  llvm::DenseMap<uint64_t, unsigned> Slots;
  llvm::DenseMap<const llvm::Constant *, bool> HasAddress;
  llvm::DenseMap<const void *, unsigned> Types, Constants, Attributes, Nodes;
  bool IsCapping = false;
  llvm::DenseMap<const llvm::Value *, unsigned> Locals, Globals;

  // Gives the module no shape: the first reason counts.
  void refuse(const llvm::Twine &Reason);

  // First pass.
  void follow();
  void refuseParts();
  void see(const llvm::Constant *C, llvm::SmallPtrSetImpl<const llvm::Constant *> &Seen);
  void gather(const llvm::Constant *C);
  void group();
  const char *oddity(const llvm::GlobalValue &G) const;

  // Second pass: each writes one thing.
  void number(uint64_t Value);
  void bytes(llvm::StringRef Bytes);
  void big(const llvm::APInt &Value);
  bool first(llvm::DenseMap<const void *, unsigned> &Seen, const void *What);
  void type(const llvm::Type *T);
  void constant(const llvm::Constant *C);
  void loaded(const llvm::Constant *C);
  void attribute(const llvm::Attribute &A);
  void attributes(llvm::AttributeSet Set);
  void attributes(llvm::AttributeList List, bool CapsAlign);
  void metadata(const llvm::Metadata *Node);
  using Kinds = llvm::SmallVector<std::pair<unsigned, llvm::MDNode *>, 8>;
  void attachments(const Kinds &Attached);
  void operand(const llvm::Value *V, bool MayBeLoaded);
  void call(const llvm::CallBase &Call);
  void instruction(const llvm::Instruction &I);
  void special(const llvm::Instruction &I);
  void body(const llvm::Function &F);
  void global(const llvm::GlobalValue &G);
  void module();
};

} // namespace shape
