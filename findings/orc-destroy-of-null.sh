#!/usr/bin/env bash
# LLVM's C interface of ORC calls a unit's `Destroy` only if the unit has data, and a generator's `Dispose` always.
#
# The guess: the function that ends a unit made by LLVMOrcCreateCustomMaterializationUnit is called once for each unit, as its description
# has it, so that a client may count units there, or free what it keeps elsewhere, and pass no data.
#
# Seen with Debian's libllvm22 1:22.1.8-1~deb12u1: with null as data `Destroy` is not called, and what it would have freed stays. With any
# other data it is called once. `Dispose` of a generator made by LLVMOrcCreateCustomCAPIDefinitionGenerator is called once in both cases.
#
# Linux on x86-64 with apt (Debian 12) and a C compiler. Installs nothing outside of a temporary folder. Fails if anything here has changed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq libllvm22=1:22.1.8-1~deb12u1 2>/dev/null
dpkg-deb -x ./*.deb debian
library=debian/usr/lib/x86_64-linux-gnu

cat >program.c <<'C'
#include <stddef.h>
#include <stdio.h>

void *LLVMOrcCreateCustomMaterializationUnit(const char *, void *, void *, size_t, void *, void (*)(void *, void *),
                                             void (*)(void *, void *, void *), void (*)(void *));
void LLVMOrcDisposeMaterializationUnit(void *);
void *LLVMOrcCreateCustomCAPIDefinitionGenerator(void *, void *, void (*)(void *));
void LLVMOrcDisposeDefinitionGenerator(void *);

static int units, generators;
static void materialize(void *data, void *responsibility) { (void)data, (void)responsibility; }
static void discard(void *data, void *dylib, void *symbol) { (void)data, (void)dylib, (void)symbol; }
static void destroy(void *data) { (void)data, units++; }
static void dispose(void *data) { (void)data, generators++; }

int main(void) {
    int some;
    void *data[] = {&some, NULL};
    for (int i = 0; i < 2; i++) {
        units = generators = 0;
        LLVMOrcDisposeMaterializationUnit(
            LLVMOrcCreateCustomMaterializationUnit("unit", data[i], NULL, 0, NULL, materialize, discard, destroy));
        LLVMOrcDisposeDefinitionGenerator(LLVMOrcCreateCustomCAPIDefinitionGenerator(NULL, data[i], dispose));
        printf("%s: %d call of Destroy, %d of Dispose\n", data[i] ? "data" : "null", units, generators);
    }
    return 0;
}
C
cc program.c -o program "$library/libLLVM.so.22.1" -Wl,--unresolved-symbols=ignore-in-shared-libs
LD_LIBRARY_PATH=$library ./program | tee seen
diff seen - <<'T' || { echo "changed" >&2; exit 1; }
data: 1 call of Destroy, 1 of Dispose
null: 0 call of Destroy, 1 of Dispose
T
