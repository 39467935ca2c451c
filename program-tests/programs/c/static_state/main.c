//# stdout: three statics of one name: 1 12 103
//# stdout: and of one function name: main first second
//# stdout: static in a function: 1 2 3
//# stdout: constants stay apart: 1 2
/* Names that several files use for themselves stay apart. */
#include <stdio.h>

static int counter;
static const char *name(void) { return "main"; }
static const int constant = 1;
int first_counter(void), second_counter(void), first_constant(void);
const char *first_name(void), *second_name(void);

static int tick(void) {
  static int ticks;
  return ++ticks;
}

int main(void) {
  counter++;
  printf("three statics of one name: %d %d %d\n", counter, first_counter(), second_counter());
  printf("and of one function name: %s %s %s\n", name(), first_name(), second_name());
  printf("static in a function: %d", tick());
  printf(" %d", tick());
  printf(" %d\n", tick());
  printf("constants stay apart: %d %d\n", constant, first_constant());
  return 0;
}
