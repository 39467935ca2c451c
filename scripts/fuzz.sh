#!/usr/bin/env bash
# Runs the fuzz targets, each for so many seconds. What they find stays in fuzz/artifacts, what they learn in fuzz/corpus.
#
#   scripts/fuzz.sh SECONDS [TARGET...]    targets: parse link archive image frames executor; all of them by default
#
# One input may take two seconds and 512 MiB, the fuzzer's own memory and that of its sanitizer included. What is linked
# never runs.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds="${1:?how many seconds each target runs}"
shift
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(parse link archive image frames executor)

# The instrumentation is an option of the compiler that only nightly ones take without being asked twice.
export RUSTC_BOOTSTRAP=1
# A stable compiler's standard library is not instrumented, which the sanitizer does not mind.
export CARGO_TARGET_DIR="$PWD/fuzz/target"

# Real objects to begin with. A byte before each says that it is a file (fuzz/src/lib.rs).
seeds() {
  local directory="$1" source
  directory="$(realpath "$directory")"
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  cat >"$work/a.c" <<'C'
__attribute__((constructor(200))) static void first(void) {}
static __thread int local = 3;
__thread int exported_variable;
extern __thread int elsewhere;
int tentative[4];
static int implementation(void) { return 1; }
static int (*resolver(void))(void) { return implementation; }
int chosen(void) __attribute__((ifunc("resolver")));
__attribute__((section("things"), used)) static int thing = 1;
extern int __start_things[], __stop_things[];
__attribute__((weak)) int function_elsewhere(int);
int f(int x) { return x ? function_elsewhere(x) + local++ + exported_variable + elsewhere : chosen() + tentative[x & 3]; }
int main(void) { return (int)(__stop_things - __start_things) + f(1); }
C
  local flags number=0
  for flags in "-O1 -fPIC -fcommon" "-O2 -fPIC -ffunction-sections -fdata-sections" "-O0 -g -fPIC"; do
    number=$((number + 1))
    # shellcheck disable=SC2086 # several flags
    cc $flags -c "$work/a.c" -o "$work/$number.o"
    { printf F; cat "$work/$number.o"; } >"$directory/object-$number"
  done
  ar rcs "$work/a.a" "$work/1.o" "$work/2.o"
  { printf F; cat "$work/a.a"; } >"$directory/archive"
  rm -rf "$work"
  trap - EXIT
}

for target in "${targets[@]}"; do
  mkdir -p "fuzz/corpus/$target"
  seeds "fuzz/corpus/$target"
  more=()
  # Threads that read a connection end by themselves, perhaps while the sanitizer looks for what is left.
  [[ $target != executor ]] || more=(-detect_leaks=0)
  printf '\n=== %s: %s s\n' "$target" "$seconds"
  cargo fuzz run --release "$target" -- -max_total_time="$seconds" -timeout=2 -rss_limit_mb=512 -malloc_limit_mb=64 \
    -max_len=65536 -print_final_stats=1 "${more[@]}"
done
