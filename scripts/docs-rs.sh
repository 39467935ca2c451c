#!/usr/bin/env bash
# Documents each published package as docs.rs does: alone, with the features of its metadata, without LLVM.
#
# Usage: scripts/docs-rs.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# A build that looks for LLVM does not find this machine's.
export LLVM_SYS_221_PREFIX=/nowhere
export RUSTDOCFLAGS="-Dwarnings --cfg docsrs"

for manifest in $(grep -l '^\[package.metadata.docs.rs\]' Cargo.toml ./*/Cargo.toml); do
  package=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
  features=$(sed -n '/^\[package.metadata.docs.rs\]/,/^$/s/^features = \[\(.*\)\]$/\1/p' "$manifest" | tr -d '" ')
  printf '%s: %s\n' "$package" "${features:-default features}"
  # A package that is a program alone has its page too.
  targets=--lib
  [[ -e "$(dirname "$manifest")/src/lib.rs" ]] || targets=--bins
  cargo doc --quiet --no-deps "$targets" -p "$package" --features "$features"
done
