// What `divide.cpp` and `part.cpp` agree on.

#pragma once

#include <llvm/IR/Module.h>
#include <vector>

namespace {

// The part of what each part has for itself, if it needs it.
const uint32_t Everywhere = ~0u;

// Names of what is local to a module and needed in several parts of it begin with this; `link/parts.rs` makes them local again.
const char *const LocalPrefix = "uruk.local.";

// The order of bitcode, which the parts are read from.
inline std::vector<llvm::GlobalValue *> valuesInOrder(llvm::Module &M) {
  std::vector<llvm::GlobalValue *> Values;
  for (llvm::Function &F : M) Values.push_back(&F);
  for (llvm::GlobalVariable &V : M.globals()) Values.push_back(&V);
  for (llvm::GlobalAlias &A : M.aliases()) Values.push_back(&A);
  for (llvm::GlobalIFunc &I : M.ifuncs()) Values.push_back(&I);
  return Values;
}

// Lists of what optimization must keep: each part has its own.
inline bool isUsedList(const llvm::GlobalValue &G) {
  return G.getName() == "llvm.used" || G.getName() == "llvm.compiler.used";
}

} // namespace
