//# signal: 6
//# stdout: flushed
//# stderr: about to abort
/* abort kills with SIGABRT; what stdio still holds is lost, destructors do not run. */
#include <stdio.h>
#include <stdlib.h>

static void handler(void) { puts("handler"); }
__attribute__((destructor)) static void destructor(void) { fputs("destructor\n", stderr); }

int main(void) {
  atexit(handler);
  puts("flushed");
  fflush(stdout);
  puts("lost");
  fputs("about to abort\n", stderr);
  abort();
}
