//# stdout: 6144 functions: 18865152
/* Thousands of small functions in three files that call one another. */
#include "many.h"
#include <stdio.h>

DEFINE_TABLE(main_functions)

int main(void) {
  long total = 0;
  for (int i = 0; i < COUNT; i++)
    total += main_functions[i](i) + second_functions[i](i) + third_functions[i](i);
  printf("%d functions: %ld\n", 3 * COUNT, total);
  return 0;
}
