//# stdout: 1610612736 bytes of zeroes: 0 0 0
//# stdout: written: 1 2 3
//# skip executor: there is a gigabyte for data
/* More zeroes than fit beside the code of most programs, in the small code model. */
#include <stdio.h>

char large[3ul << 29];
static char *volatile start = large;

int main(void) {
  char *middle = start + sizeof large / 2, *last = start + sizeof large - 1;
  printf("%zu bytes of zeroes: %d %d %d\n", sizeof large, *start, *middle, *last);
  *start = 1, *middle = 2, *last = 3;
  printf("written: %d %d %d\n", large[0], *middle, start[sizeof large - 1]);
  return 0;
}
