#!/usr/bin/env bash
# Two builds of LLVM 22.1.8 have one soname and one version node, and cannot stand for each other.
#
# The guess: a library's soname and the version node of its symbols say which programs it serves. libLLVM.so.22.1 with LLVM_22.1 is what
# Debian's `opt` asks for, so either build would do.
#
# Seen: PyPI's karellen-llvm-core 22.1.8 is built with libc++, Debian's libllvm22 1:22.1.8-1~deb12u1 with libstdc++. Functions of the C
# interface have the same names in both. Names that have a std::string in them do not, so Debian's `opt` ends with a lookup error beside
# the wheel's library. A program that uses the C interface alone starts with either, and C++ code in it that hands over strings does not.
#
# Linux on x86-64 with apt (Debian 12) and pip. Installs nothing outside of a temporary folder. Fails if anything here has changed.
set -euo pipefail

wheel=karellen-llvm-core==22.1.8
debian=1:22.1.8-1~deb12u1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

expect() { # WHAT WANTED SEEN
  printf '%s: %s\n' "$1" "$3"
  [[ "$2" == "$3" ]] || { printf 'changed: wanted %s\n' "$2" >&2; exit 1; }
}

pip download --quiet --no-deps --disable-pip-version-check --only-binary :all: --platform manylinux_2_28_x86_64 "$wheel" -d .
python3 -m zipfile -e ./*.whl unpacked
apt-get download -qq "libllvm22=$debian" "llvm-22=$debian" 2>/dev/null
for package in ./*.deb; do dpkg-deb -x "$package" debian; done
mkdir of-wheel
cp unpacked/*.data/data/lib/libLLVM.so.22.1 of-wheel
for library in libc++ libc++abi; do
  cp unpacked/*.data/data/lib/x86_64-unknown-linux-gnu/"$library.so.1.0" "of-wheel/$library.so.1"
done
of_debian=debian/usr/lib/x86_64-linux-gnu
opt=debian/usr/lib/llvm-22/bin/opt

soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
cxx_library() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(lib\(std\)\?c++\.so\.[0-9]*\)\]/\1/p'; }
has() { nm -D --defined-only "$1" >names && grep -q "$2" names && echo yes || echo no; }

for library in of-wheel/libLLVM.so.22.1 "$of_debian/libLLVM.so.22.1"; do
  expect "$library, soname" libLLVM.so.22.1 "$(soname "$library")"
  expect "$library, LLVMContextCreate@@LLVM_22.1" yes "$(has "$library" ' LLVMContextCreate@@LLVM_22.1$')"
done
expect "the wheel's library needs" libc++.so.1 "$(cxx_library of-wheel/libLLVM.so.22.1)"
expect "Debian's library needs" libstdc++.so.6 "$(cxx_library "$of_debian/libLLVM.so.22.1")"
expect "the wheel's names have libstdc++'s strings" no "$(has of-wheel/libLLVM.so.22.1 NSt7__cxx1112basic_string)"
expect "Debian's names have libstdc++'s strings" yes "$(has "$of_debian/libLLVM.so.22.1" NSt7__cxx1112basic_string)"

run() { LD_LIBRARY_PATH=$1 "$opt" --version >out 2>&1 && echo starts || { grep -o 'symbol lookup error' out || cat out; }; }
expect "Debian's opt with Debian's library" starts "$(run "$of_debian")"
expect "Debian's opt with the wheel's library" 'symbol lookup error' "$(run of-wheel)"
