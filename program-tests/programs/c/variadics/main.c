//# stdout: ints: 55
//# stdout: doubles: 8.75
//# stdout: mixed: 1 2.5 three 4 0x5 6.25 seven 8 9.125 ten
//# stdout: structs: 3 4.5 6
//# stdout: copied: 55 55
//# stdout: formatted elsewhere: <  7|seven|7.000>
/* Variadic functions defined in another file, with every class of argument, more than fit in registers. */
#include "variadics.h"
#include <stdio.h>

int main(void) {
  char text[64];
  printf("ints: %d\n", sum_ints(10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  printf("doubles: %g\n", sum_doubles(10, 1.0, 0.5, 0.25, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0));
  print_mixed("idsixdsids", 1, 2.5, "three", 4, 5, 6.25, "seven", 8, 9.125, "ten");
  print_structs(3, (struct small){3}, (struct mixed){4.5, 6});
  sum_twice(10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
  format(text, sizeof text, "<%3d|%s|%.3f>", 7, "seven", 7.0);
  printf("formatted elsewhere: %s\n", text);
  return 0;
}
