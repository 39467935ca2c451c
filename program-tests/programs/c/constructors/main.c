//# stdout: early 101 in early.c
//# stdout: main.c 150
//# stdout: late 200 in late.c
//# stdout: late 200 again
//# stdout: early.c without a priority
//# stdout: late.c without a priority
//# stdout: main.c without a priority
//# stdout: main with argc 1
//# stdout: atexit handler
//# stdout: main.c destructor
//# stdout: late.c destructor
//# stdout: early.c destructor
//# stdout: late 300 destructor
//# stdout: early 150 destructor
//# stdout: main.c 101 destructor
//# exit: 9
//# skip archive: members that only have constructors are not pulled in, natively either
/* Initialisers and finalisers of several files run in the order of their priorities, over all files together. Within
 * one priority the order of the files is the linker's business, so each file here waits its turn: see `turn.h`. */
#include "turn.h"
#include <stdlib.h>

__attribute__((constructor(150))) static void middle(void) { say("main.c 150"); }
__attribute__((constructor)) static void plain(void) { in_turn(2, "main.c without a priority"); }
__attribute__((destructor)) static void plain_end(void) { in_turn_at_end(2, "main.c destructor"); }
__attribute__((destructor(101))) static void last_of_all(void) { say("main.c 101 destructor"); }
static void handler(void) { say("atexit handler"); }

static const char *slots[2][3];
static int taken[2];

void say(const char *text) {
  fputs(text, stdout);
  putchar('\n');
}

/* Three callers come in any order; what they say comes out in the order of their numbers. */
static void collect(int which, int number, const char *text) {
  slots[which][number] = text;
  if (++taken[which] == 3)
    for (int i = 0; i < 3; i++)
      say(slots[which][which ? 2 - i : i]);
}

void in_turn(int number, const char *text) { collect(0, number, text); }
void in_turn_at_end(int number, const char *text) { collect(1, number, text); }

int main(int argc, char **argv) {
  (void)argv;
  atexit(handler);
  printf("main with argc %d\n", argc);
  return 9;
}
