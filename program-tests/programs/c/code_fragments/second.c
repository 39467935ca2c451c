#include <stdio.h>

__attribute__((used)) static void early_too(void) { puts("second of .init"); }
__attribute__((used)) static void late_too(void) { puts("second of .fini"); }
__asm__(".pushsection .init, \"ax\", @progbits\n call early_too\n .popsection");
__asm__(".pushsection .fini, \"ax\", @progbits\n call late_too\n .popsection");
