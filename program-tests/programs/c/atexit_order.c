//# stdout: main returns
//# stdout: third
//# stdout: registered while exiting
//# stdout: second
//# stdout: first: status 3
//# stdout: destructor
//# exit: 3
/* Handlers run newest first; one that is registered by a handler runs next. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>

static void first(int status, void *text) { printf("%s: status %d\n", (char *)text, status); }
static void second(void) { puts("second"); }
static void nested(void) { puts("registered while exiting"); }
static void third(void) {
  puts("third");
  atexit(nested);
}
__attribute__((destructor)) static void destructor(void) { puts("destructor"); }

int main(void) {
  on_exit(first, "first");
  atexit(second);
  atexit(third);
  puts("main returns");
  return 3;
}
