//# stdout: first.c 150
//# stdout: second.c 150
//# stdout: third.c 150
//# stdout: first.c
//# stdout: second.c
//# stdout: third.c
//# stdout: main: 2 registered
//# stdout: third.c ends
//# stdout: second.c ends
//# stdout: first.c ends
//# skip archive: members that nobody refers to are not pulled in, natively either
//# skip package: the files that share a section are one unit, and what they run at start runs together
/* Files that share a section are placed together; their constructors keep their places among those of other files. */
#include "registered.h"
#include <stdio.h>

extern int __start_registered, __stop_registered;

void say(const char *text) {
  fputs(text, stdout);
  putchar('\n');
}

int main(void) {
  printf("main: %d registered\n", (int)(&__stop_registered - &__start_registered));
  return 0;
}
