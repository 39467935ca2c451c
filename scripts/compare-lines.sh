#!/usr/bin/env bash
# Compiles and runs the tasks that the README counts by lines, with the other engines. Ours are tests (`tests/embed/tasks.rs`).
#
# Wants LLVM 22 with its C++ headers and clang++-22; Cargo fetches inkwell and cranelift-jit.
set -euo pipefail
cd "$(dirname "$0")/../tests/programs/lines"

llvm_config=${LLVM_CONFIG:-llvm-config-22}
target=${CARGO_TARGET_DIR:-../../../target/lines}
mkdir -p "$target"
target=$(realpath "$target")

# shellcheck disable=SC2046 # flags are words
clang++-22 $("$llvm_config" --cxxflags | sed 's/-DNDEBUG//') lljit.cpp -o "$target/lljit" $("$llvm_config" --ldflags --libs)
"$target/lljit"
echo "LLJIT: all tasks passed"

export CARGO_TARGET_DIR=$target LLVM_SYS_221_PREFIX=${LLVM_SYS_221_PREFIX:-$("$llvm_config" --prefix)}
for program in inkwell cranelift; do
  cargo run --quiet --manifest-path foreign/Cargo.toml --bin "$program"
  echo "$program: all tasks passed"
done
