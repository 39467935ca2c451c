//# stdout: preinit
//# stdout: first of .init
//# stdout: second of .init
//# stdout: constructor 101
//# stdout: constructor
//# stdout: main
//# stdout: destructor
//# stdout: destructor 101
//# stdout: first of .fini
//# stdout: second of .fini
//# exit: 3
//# skip archive: a member that nothing refers to is not pulled in, natively either
/* Fragments of code in .init and .fini, which natively make up one function each: they run in link order, once, before
   what stands in .init_array and after what stands in .fini_array. libcrypto.a has one. */
#include <stdio.h>

__attribute__((used)) static void early(void) { puts("first of .init"); }
__attribute__((used)) static void late(void) { puts("first of .fini"); }
__asm__(".pushsection .init, \"ax\", @progbits\n .p2align 4\n call early\n .popsection");
__asm__(".pushsection .fini, \"ax\", @progbits\n call late\n .popsection");

static void preinit(void) { puts("preinit"); }
__attribute__((section(".preinit_array"), used)) static void (*const before)(void) = preinit;
__attribute__((constructor(101))) static void numbered(void) { puts("constructor 101"); }
__attribute__((constructor)) static void plain(void) { puts("constructor"); }
__attribute__((destructor)) static void end(void) { puts("destructor"); }
__attribute__((destructor(101))) static void numbered_end(void) { puts("destructor 101"); }

int main(void) {
  puts("main");
  return 3;
}
