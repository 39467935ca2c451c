//# stdout: kept
//# exit: 5
/* _exit leaves buffers unflushed and handlers uncalled. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void handler(void) { puts("handler"); fflush(stdout); }

int main(void) {
  atexit(handler);
  puts("kept");
  fflush(stdout);
  puts("lost");
  _exit(5);
}
