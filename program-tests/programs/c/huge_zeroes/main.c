//# stdout: 3221225472 bytes: zero at both ends: yes
//# stdout: written and read at both ends: 1 2
//# stdout: its neighbour: 0, then 3
//# stdout: a gibibyte in another file: 0, then 4
//# flags: -mcmodel=medium
//# skip executor: there is a gigabyte for data
/* Gigabytes of zero-initialised data of which a few pages are touched. */
#include <stdio.h>

static char huge[3ul << 30];
char small;
extern char elsewhere[1ul << 30];

int main(void) {
  volatile char *data = huge, *other = elsewhere;
  printf("%zu bytes: zero at both ends: %s\n", sizeof huge, data[0] == 0 && data[sizeof huge - 1] == 0 ? "yes" : "no");
  data[0] = 1, data[sizeof huge - 1] = 2;
  printf("written and read at both ends: %d %d\n", data[0], data[sizeof huge - 1]);
  printf("its neighbour: %d, ", small);
  small = 3;
  printf("then %d\n", small);
  printf("a gibibyte in another file: %d, ", other[(1ul << 30) - 1]);
  other[(1ul << 30) - 1] = 4;
  printf("then %d\n", other[(1ul << 30) - 1]);
  return 0;
}
