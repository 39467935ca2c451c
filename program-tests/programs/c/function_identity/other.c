#include "identity.h"
#include <math.h>
#include <stdlib.h>

extern int inlined(int x);
const char *const constant = "constant";
const char *constant_address(void) { return constant; }
int theirs(int x) { return x; }
void (*address_of(enum which which))(void) {
  switch (which) {
  case MINE: return (void (*)(void))mine;
  case THEIRS: return (void (*)(void))theirs;
  case LIBC: return (void (*)(void))qsort;
  case LIBM: return (void (*)(void))cbrt;
  default: return (void (*)(void))inlined;
  }
}
