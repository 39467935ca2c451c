//# stdout: small 1 2; two halves 3.5 4; large 5 11 17
//# stdout: returned: 7 8.5 | 10 20 30 40 50
//# stdout: many: 1 2 3 4 5 6 7 8 9 10 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 9.5
//# stdout: narrow: -1 255 -1 65535 1
//# stdout: packed: 258 3
//# stdout: tail calls: 1000000
//# stdout: stack of 4 MiB: 4194304
/* Values of every class pass between files as the platform's calling convention says. */
#include "convention.h"
#include <stdio.h>

static long deep(long left) {
  volatile char frame[1024];
  frame[0] = 1;
  return left <= 0 ? 0 : deep(left - 1) + (long)sizeof frame * frame[0];
}

int main(void) {
  struct large returned;
  struct halves halves = return_halves(7, 8.5);
  take((struct small){1, 2}, (struct halves){3.5, 4}, (struct large){{5, 11, 17, 23, 29}});
  returned = return_large(10);
  printf("returned: %g %ld.5 | %ld %ld %ld %ld %ld\n", halves.real, halves.whole, returned.values[0], returned.values[1],
         returned.values[2], returned.values[3], returned.values[4]);
  many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5);
  narrow(-1, 255, -1, 65535, 1);
  packed((struct packed){1, 258, 3});
  printf("tail calls: %ld\n", count_even(1000000, 0));
  printf("stack of 4 MiB: %ld\n", deep(4096));
  return 0;
}
