#!/usr/bin/env bash
# Runs the tests of recorder, core, dispatch and instances, and the protocol's, under ThreadSanitizer, on the stable toolchain.
#
#   scripts/tsan.sh                               all of them
#   scripts/tsan.sh -p protocol-tests --test protocol    what these arguments of cargo test choose; more for the tests behind --
#
# The standard library is built again with the sanitizer, from the component rust-src: one that is not instrumented
# shows the sanitizer no reference count of an Arc and no start of a thread, and everything is a race.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --sanitizer

chosen=()
while [[ $# -gt 0 && $1 != -- ]]; do
  chosen+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
if [[ ${#chosen[@]} -eq 0 ]]; then
  chosen=(-p uruk-recorder -p uruk-core -p uruk-dispatch -p uruk-instances -p protocol-tests)
fi
# Documentation's examples are left out; a file that is named is run alone.
[[ " ${chosen[*]} " == *" --test "* ]] || chosen+=(--lib --tests)

# What is unstable here is the sanitizer and the standard library's build, not what they are told to build.
export RUSTC_BOOTSTRAP=1
# Fences are what the sanitizer does not understand. `crossbeam` has a cfg under which it uses none; `seize` gets a copy
# below. Ours (dispatch/src/sleep.rs, core/src/ready_index.rs) say who wakes whom and whether an answer counts, which is atomic
# itself; what comes before a publication is ordered for the sanitizer by the map's own stores and loads.
# `rustix` calls the kernel itself unless it is told to go by way of the C library, where the sanitizer sees that memory which is unmapped and
# mapped again is new: a stack of one thread's first call was a race with another's.
export RUSTFLAGS="-Zsanitizer=thread --cfg crossbeam_sanitize_thread --cfg rustix_use_libc"
export CARGO_TARGET_DIR=target-tsan
# Optimised a little, the tests take half the time.
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_TEST_OPT_LEVEL=1
# Tests that panic on purpose would spend half a minute each on names for their frames.
export RUST_BACKTRACE=0
suppressions="$PWD/$CARGO_TARGET_DIR/suppressions"
mkdir -p "$CARGO_TARGET_DIR"
# `seize` frees what `papaya` has replaced, and what the table of names has outgrown, once every reader that could see it has
# left. What readers did comes before that by accesses with Release or Relaxed and fence(Acquire) behind them
# (`Collector::leave`, `traverse`, `try_retire`). In a copy the accesses themselves acquire, which the sanitizer understands:
# nothing else differs, so that a value freed beneath a reader, or without a look at one of them, is a race that it tells.
seize=$(cargo metadata --locked --format-version 1 \
  | sed -n 's|.*"manifest_path":"\([^"]*/seize-[0-9.]*\)/Cargo.toml".*|\1|p')
[[ -d $seize ]] || { echo "tsan.sh: the sources of seize are not where cargo says" >&2; exit 1; }
copy="$PWD/$CARGO_TARGET_DIR/$(basename "$seize")"
if [[ ! -d $copy ]]; then
  rm -rf "$copy.new"
  cp -r "$seize" "$copy.new"
  collector="$copy.new/src/raw/collector.rs"
  # Five fences, for six accesses; with another number it is another version, and somebody has to look at it.
  [[ $(grep -c 'fence(Ordering::Acquire)' "$collector") == 5 ]] \
    || { echo "tsan.sh: seize has changed its fences: see which accesses they order" >&2; exit 1; }
  sed -i 's/Ordering::Release\b/Ordering::AcqRel/; s/Ordering::Relaxed\b/Ordering::Acquire/g' "$collector"
  mv "$copy.new" "$copy"
fi
# A thief of a `crossbeam` deque reads a place that its owner may be writing, and throws away what it read if another look
# says so: volatile reads and writes of which nothing is used, in the pool's deques and in rayon's.
cat >"$suppressions" <<'EOF'
race:crossbeam_deque*push
race:crossbeam_deque*steal
EOF
export TSAN_OPTIONS="halt_on_error=1 suppressions=$suppressions ${TSAN_OPTIONS:-}"
# The sanitizer has a thread that runs ten times a second: nothing is ever still, as one test of patience has it.
# The state machine alone runs on one thread, and so do random histories and what weighs a million symbols: no races, but minutes. A
# thousand threads that wait for each other are checked as a whole at each step.
exec cargo --config "paths=[\"$copy\"]" test -Zbuild-std --target "$(rustc -vV | sed -n 's/^host: //p')" "${chosen[@]}" \
  -- --skip protocol:: --skip symbol::map:: --skip symbol::window:: \
  --skip the_ready_path_answers_as_the_locked_path --skip transactions_are_all_or_none \
  --skip a_million_symbols_that_came_and_went_leave_nothing --skip units_that_came_and_went_leave_nothing \
  --skip a_dependant_takes_as_many_bytes_as_documented \
  --skip one_worker_completes_a_chain_of_a_thousand_units --skip a_scenario_that_does_nothing_any_more_fails "$@"

