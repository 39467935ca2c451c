#!/usr/bin/env bash
# Leaves out one step of a protocol at a time and demands that a model notices: a model never seen to fail proves nothing.
#
#   scripts/weaken.sh            every step named in the source
#   scripts/weaken.sh NAME...    these
#
# A step is named where it is left out: cfg!(uruk_weaken = "name").
set -euo pipefail

# Only our own crates are built again for each step: cargo calls this script as the compiler of workspace members,
# under a link whose name is the step (and whose path is part of what cargo tells builds apart by).
if [[ $(basename "$0") == weaken-as-* ]]; then
  exec "$@" --cfg "uruk_weaken=\"$(basename "$0" | cut -d- -f3-)\""
fi

cd "$(dirname "$0")/.."
if [[ $# -gt 0 ]]; then
  steps=("$@")
else
  mapfile -t steps < <(grep -rhoE 'uruk_weaken = "[a-z0-9_]+"' core/src dispatch/src | sed 's/.*"\(.*\)"/\1/' | sort -u)
fi

export RUSTFLAGS="--cfg uruk_loom" CARGO_TARGET_DIR=target-loom
mkdir -p "$CARGO_TARGET_DIR/weaken"
unnoticed=()
for step in "${steps[@]}"; do
  log="$CARGO_TARGET_DIR/weaken/$step.log"
  wrapper="$PWD/$CARGO_TARGET_DIR/weaken/weaken-as-$step"
  ln -sfn "$PWD/scripts/weaken.sh" "$wrapper"
  export RUSTC_WORKSPACE_WRAPPER="$wrapper"
  # Built first, so that a build that fails is not taken for a model that notices.
  cargo test --quiet --release -p loom-tests --no-run 2>"$log" || { cat "$log" >&2; exit 1; }
  if timeout 600 cargo test --quiet --release -p loom-tests --no-fail-fast >"$log" 2>&1; then
    unnoticed+=("$step")
    printf '%-42s NOT NOTICED\n' "$step"
  else
    # A model that finds a lost wake-up ends in a panic inside a panic, and names itself on the way.
    printf '%-42s noticed by %s\n' "$step" \
      "$(grep -oE "^thread '[a-z_]+'|^test [a-z_:]+ \.\.\. FAILED" "$log" | sed -E "s/^thread '//; s/^test //; s/'$//; s/ .*//" | sort -u | tr '\n' ' ')"
  fi
done

if [[ ${#unnoticed[@]} -gt 0 ]]; then
  printf 'weaken: no model fails without: %s\n' "${unnoticed[*]}" >&2
  exit 1
fi
