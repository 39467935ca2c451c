#!/usr/bin/env bash
# Installs what the workspace needs and the machine lacks. Does nothing, quickly, where nothing is missing.
#
#   scripts/setup.sh              what building, testing and the demo need
#   scripts/setup.sh --lint       rustfmt and clippy
#   scripts/setup.sh --sanitizer  the standard library's source, which ThreadSanitizer needs
#   scripts/setup.sh --aarch64    compiler and libraries for AArch64, for which some tests are built
#   scripts/setup.sh --corpus     libraries of Debian's, on which `make soak` runs programs
#   scripts/setup.sh --fuzz       cargo-fuzz, which builds and runs the fuzz targets
set -euo pipefail
cd "$(dirname "$0")/.."

# llvm-22-dev, libpolly-22-dev  the library that `ir` compiles with, and what llvm-config says it links
# clang-22                      compiles C and C++ files given to `uruk run`, and the programs of the tests
# libclang-rt-22-dev            the runtime that writes profiles, for a test
# lld-22                        links the shared libraries and native twins of the tests
# g++                           the C++ headers and library; with it the linker and `ar`
# make                          the Makefile
# gdb                           debugs linked code in tests, which are skipped without it
# linux-perf                    profiles linked code in a test, which is skipped without it
# valgrind                      runs linked code in a test, which is skipped without it
# lldb-22                       debugs linked code in a test, which is skipped without it
# qemu-user                     runs images as on other processors in a test, which is skipped without it
# chromium-headless-shell       shows the dashboard in tests, which are skipped without it
# prometheus                    runs the queries of docs/grafana.json in a test, which is skipped without it; where systemd runs,
#                               the package also starts a service, which no test needs
packages=(llvm-22-dev libpolly-22-dev clang-22 libclang-rt-22-dev lld-22 g++ make gdb lldb-22 linux-perf valgrind qemu-user chromium-headless-shell prometheus)

# gcc-aarch64-linux-gnu         links programs for AArch64
# libc6-dev-arm64-cross         the C library of these programs, which qemu runs
# g++-aarch64-linux-gnu         the C++ headers and library of these programs
aarch64_packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross)

# The static archives of programs in program-tests/programs/debian, whose heads name the packages.
add_corpus() {
  local named
  mapfile -t named < <(sed -n 's,^// packages: ,,p' program-tests/programs/debian/* | tr ' ' '\n' | sort -u)
  install_packages "${named[@]}"
}

die() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

is_installed() {
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# A package that apt knows has a candidate version.
is_known() {
  [[ "$(apt-cache policy "$1" 2>/dev/null)" == *Candidate:\ [0-9]* ]]
}

check_rust() {
  command -v cargo >/dev/null || die "cargo is missing. Install Rust from https://rustup.rs, then try again."
}

add_lints() {
  local component
  for component in rustfmt clippy; do
    # `cargo fmt` and `cargo clippy` answer only where the component is there.
    "cargo-${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
    command -v rustup >/dev/null || die "$component is missing, and so is rustup, which would install it."
    rustup component add "$component"
  done
}

add_source() {
  [[ -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]] && return
  command -v rustup >/dev/null || die "rust-src is missing, and so is rustup, which would install it."
  rustup component add rust-src
}

add_aarch64() {
  install_packages "${aarch64_packages[@]}"
  [[ -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ]] && return
  command -v rustup >/dev/null || die "Rust's library for AArch64 is missing, and so is rustup, which would install it."
  rustup target add aarch64-unknown-linux-gnu
}

add_fuzzer() {
  command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
}

install_packages() {
  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null \
      || die "these packages are missing, and there is no sudo to install them with: ${missing[*]}" \
        "As root: apt-get install --no-install-recommends ${missing[*]}"
    apt=(sudo "${apt[@]}")
  fi

  printf 'setup: installing %s\n' "${missing[*]}"
  # The list of packages is fetched only where the one at hand is empty or too old to serve.
  for package in "${missing[@]}"; do
    is_known "$package" && continue
    "${apt[@]}" update
    break
  done
  for package in "${missing[@]}"; do
    is_known "$package" || die "apt knows no package $package." \
      "Debian 12 has LLVM 22 in bookworm-security: is it in /etc/apt/sources.list.d?" \
      "On another release, LLVM's own package archive has it."
  done
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" || {
    # An old list names versions that the server no longer has.
    "${apt[@]}" update
    "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" \
      || die "apt-get could not install ${missing[*]}; its own message is above."
  }
  # A build that came before found no LLVM, and cargo would believe it for ever.
  [[ ! -d target ]] || cargo clean --quiet -p llvm-sys
}

check_rust
case "${1:-}" in
  "")
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || {
      # Not Debian: whoever has the tools under these names needs nothing from us.
      command -v llvm-config-22 >/dev/null && command -v clang-22 >/dev/null && exit 0
      die "this is no Debian system. Provide llvm-config-22 and clang-22 (LLVM 22 with its headers), then try again."
    }
    install_packages "${packages[@]}"
    ;;
  --lint) add_lints ;;
  --sanitizer) add_source ;;
  --aarch64) add_aarch64 ;;
  --corpus) add_corpus ;;
  --fuzz) add_fuzzer ;;
  *) die "unknown argument: $1" ;;
esac
