//# stdout: dense: 0 100 201 302 403 504 605 706 -1
//# stdout: sparse: 1 2 3 4 0
//# stdout: strings: Monday Wednesday Sunday
//# stdout: machine: 3628800
/* Switch statements that become jump tables, comparison trees and lookup tables; an interpreter with computed goto. */
#include <stdio.h>

__attribute__((noinline)) static int dense(int x) {
  switch (x) {
  case 0: return x;
  case 1: return x + 99;
  case 2: return x + 199;
  case 3: return x * 100 + 2;
  case 4: return x * 100 + 3;
  case 5: return x * 100 + 4;
  case 6: return x * 100 + 5;
  case 7: return x * 100 + 6;
  default: return -1;
  }
}

__attribute__((noinline)) static int sparse(long x) {
  switch (x) {
  case -1000000: return 1;
  case 7: return 2;
  case 123456789: return 3;
  case 0x123456789abcdef: return 4;
  default: return 0;
  }
}

__attribute__((noinline)) static const char *day(int x) {
  switch (x) {
  case 0: return "Monday";
  case 1: return "Tuesday";
  case 2: return "Wednesday";
  case 3: return "Thursday";
  case 4: return "Friday";
  case 5: return "Saturday";
  default: return "Sunday";
  }
}

enum { PUSH, MULTIPLY, DECREMENT, JUMP_IF, SWAP, DUPLICATE, HALT };

static long interpret(const int *code) {
  static const void *const labels[] = {&&push, &&multiply, &&decrement, &&jump_if, &&swap, &&duplicate, &&halt};
  long accumulator = 1, counter = 0;
  const int *at = code;
#define NEXT goto *labels[*at++]
  NEXT;
push: counter = *at++; NEXT;
multiply: accumulator *= counter; NEXT;
decrement: counter--; NEXT;
jump_if: at = counter > 0 ? code + *at : at + 1; NEXT;
swap: { long old = counter; counter = accumulator; accumulator = old; } NEXT;
duplicate: accumulator = counter; NEXT;
halt: return accumulator;
}

int main(void) {
  static const int factorial[] = {PUSH, 10, MULTIPLY, DECREMENT, JUMP_IF, 2, HALT};
  static const long keys[] = {-1000000, 7, 123456789, 0x123456789abcdef, 8};
  printf("dense:");
  for (volatile int i = 0; i < 9; i++)
    printf(" %d", dense(i));
  printf("\nsparse:");
  for (int i = 0; i < 5; i++)
    printf(" %d", sparse(keys[i]));
  printf("\nstrings: %s %s %s\n", day(0), day(2), day(6));
  printf("machine: %ld\n", interpret(factorial));
  return 0;
}
