#!/usr/bin/env bash
# Runs the tests of core and dispatch under ThreadSanitizer.
#
# It needs the standard library rebuilt with the sanitizer, and so a nightly toolchain with rust-src; TOOLCHAIN names another.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain="${TOOLCHAIN:-nightly}"
if ! sysroot="$(rustc "+$toolchain" --print sysroot 2>/dev/null)"; then
  printf 'tsan: no toolchain "%s". Install it: rustup toolchain install %s --component rust-src\n' "$toolchain" "$toolchain" >&2
  exit 1
fi
if [[ ! -d "$sysroot/lib/rustlib/src" ]]; then
  printf 'tsan: rust-src is missing. Install it: rustup component add rust-src --toolchain %s\n' "$toolchain" >&2
  exit 1
fi

# The sanitizer does not understand fences. `crossbeam` has a cfg under which it uses none; the fences of our parking
# protocol order no data, only who wakes whom.
export RUSTFLAGS="-Zsanitizer=thread --cfg crossbeam_sanitize_thread"
export RUSTDOCFLAGS="-Zsanitizer=thread"
export TSAN_OPTIONS="halt_on_error=1"
export CARGO_TARGET_DIR=target-tsan
exec cargo "+$toolchain" test -Zbuild-std --target "$(rustc -vV | sed -n 's/^host: //p')" \
  -p uruk-core -p uruk-dispatch --lib --tests "$@"
