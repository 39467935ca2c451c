//# stdout: quick handler 2
//# stdout: quick handler 1
//# exit: 4
/* quick_exit runs its own handlers alone, and neither flushes stdio nor runs destructors. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void tell(const char *text, size_t length) { if (write(1, text, length) < 0) abort(); }
static void one(void) { tell("quick handler 1\n", 16); }
static void two(void) { tell("quick handler 2\n", 16); }
static void not_run(void) { tell("atexit ran\n", 11); }
__attribute__((destructor)) static void not_run_either(void) { tell("destructor ran\n", 15); }

int main(void) {
  at_quick_exit(one);
  at_quick_exit(two);
  atexit(not_run);
  fputs("lost in the buffer", stdout);
  quick_exit(4);
}
