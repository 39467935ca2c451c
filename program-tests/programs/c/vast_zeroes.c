//# stdout: 3 4 0
//# stdout: 7 8 0
//# skip executor: there is a gigabyte for data
/* More zeroes than a small displacement reaches, in two variables and a tentative one: at -O0 every access had one. */
#include <stdio.h>

static char huge[1500u << 20];
char big[700u << 20];
static long wide[200u << 17];

__attribute__((noinline)) static long *end_of(long *start) { return start + (200u << 17) - 1; }

int main(void) {
  huge[1400u << 20] = 3;
  big[600u << 20] = 4;
  printf("%d %d %d\n", huge[1400u << 20], big[600u << 20], huge[5]);
  wide[0] = 7;
  *end_of(wide) = 8;
  printf("%ld %ld %ld\n", wide[0], wide[(200u << 17) - 1], wide[1u << 20]);
  return 0;
}
