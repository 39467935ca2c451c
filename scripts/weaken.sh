#!/usr/bin/env bash
# Leaves out one step of a protocol at a time and demands that a model notices: a model never seen to fail proves nothing.
#
#   scripts/weaken.sh            every step named in the source
#   scripts/weaken.sh NAME...    these
set -euo pipefail
cd "$(dirname "$0")/.."

# A step is named where it is left out: cfg!(uruk_weaken = "name").
if [[ $# -gt 0 ]]; then
  steps=("$@")
else
  mapfile -t steps < <(grep -rhoE 'uruk_weaken = "[a-z0-9_-]+"' core/src dispatch/src | sed 's/.*"\(.*\)"/\1/' | sort -u)
fi

unnoticed=()
for step in "${steps[@]}"; do
  log="$(mktemp)"
  export RUSTFLAGS="--cfg uruk_loom --cfg uruk_weaken=\"$step\"" CARGO_TARGET_DIR=target-loom
  # Built first, so that a build that fails is not taken for a model that notices.
  cargo test --quiet --release -p loom-tests --no-run
  if timeout 600 cargo test --quiet --release -p loom-tests --no-fail-fast >"$log" 2>&1; then
    unnoticed+=("$step")
    printf '%-32s NOT NOTICED\n' "$step"
  else
    # A model that finds a lost wake-up ends in a panic inside a panic, and names itself on the way.
    printf '%-32s noticed by %s\n' "$step" \
      "$(grep -oE "^thread '[a-z_]+'|^test [a-z_:]+ \.\.\. FAILED" "$log" | sed -E "s/^thread '//; s/^test //; s/'$//; s/ .*//" | sort -u | tr '\n' ' ')"
  fi
  rm -f "$log"
done

if [[ ${#unnoticed[@]} -gt 0 ]]; then
  printf 'weaken: no model fails without: %s\n' "${unnoticed[*]}" >&2
  exit 1
fi
