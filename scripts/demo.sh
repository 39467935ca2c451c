#!/usr/bin/env bash
# Runs a SQL session in SQLite, which the engine compiles from LLVM IR, function by function as they are called, and links by itself.
#
# What is called often is compiled better while it runs. All that is compiled is kept, and a second run finds it.
#
#   scripts/demo.sh [SQL...]     the built-in session, or the statements given
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
  printf '\n\033[1m%s\033[0m\n' "$*"
}

step "Building uruk"
cargo build --release -p uruk --features cli

step "Fetching SQLite's source, which comes with a cargo dependency"
source_of() {
  cargo run --quiet -p uruk-tests --bin program-sources -- sqlite "$@"
}
directory="$(source_of)"
mapfile -t files < <(source_of --files)
mapfile -t flags < <(source_of --flags)
printf '%s\n' "$directory"

step "Compiling it to LLVM bitcode: what the front end emits, before any optimization"
out=target/demo
mkdir -p "$out"
modules=()
for file in "${files[@]}" program-tests/programs/sqlite/session.c; do
  module="$out/$(basename "$file" .c).bc"
  modules+=("$module")
  # An hour later the source is the same.
  if [[ ! "$module" -nt "$file" ]]; then
    clang-22 -O2 -Xclang -disable-llvm-passes -emit-llvm -c "${flags[@]}" "$file" -o "$module"
  fi
  du -h "$module"
done

command=(target/release/uruk run --tiered --cache "$out/cache" --stats "${modules[@]}")
[[ $# -eq 0 ]] || command+=(-- "$@")
step "${command[*]}"
"${command[@]}"

step "The second start: what was compiled is in $out/cache"
"${command[@]}" >/dev/null
target/release/uruk cache stats --cache "$out/cache"
