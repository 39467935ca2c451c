//# signal: 11
//# stdout: before
/* A wild store kills with SIGSEGV, and nothing stands in between. */
#include <stdio.h>

static int *volatile nowhere = (int *)16;

int main(void) {
  puts("before");
  fflush(stdout);
  *nowhere = 1;
  puts("after");
  return 0;
}
