//# stdout: own function: same
//# stdout: other file's function: same
//# stdout: libc's function: same
//# stdout: libm's function: same
//# stdout: inline function: same
//# stdout: string constant of one file: same
//# stdout: called through the other file's pointer: 30
/* A function has one address, whichever file asks. */
#include "identity.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int mine(int x) { return x * 10; }

static void compare(const char *name, void (*here)(void), enum which which) {
  printf("%s: %s\n", name, here == address_of(which) ? "same" : "different");
}

int main(void) {
  compare("own function", (void (*)(void))mine, MINE);
  compare("other file's function", (void (*)(void))theirs, THEIRS);
  compare("libc's function", (void (*)(void))qsort, LIBC);
  compare("libm's function", (void (*)(void))cbrt, LIBM);
  compare("inline function", (void (*)(void))inlined, INLINED);
  printf("string constant of one file: %s\n", constant == constant_address() ? "same" : "different");
  printf("called through the other file's pointer: %d\n", ((int (*)(int))address_of(MINE))(3));
  return theirs(0);
}
