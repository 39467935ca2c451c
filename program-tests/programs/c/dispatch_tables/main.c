//# stdout: 12 + 4 = 16
//# stdout: 12 - 4 = 8
//# stdout: 12 * 4 = 48
//# stdout: 12 % 4 = 0
//# stdout: shapes: circle 3 square 16
//# stdout: chain: a b c
//# stdout: differences: 3 entries
/* Read-only data full of addresses: of functions and variables here, in another file, and in libc. */
#include "tables.h"
#include <stdio.h>
#include <stdlib.h>

static int add(int a, int b) { return a + b; }
static int subtract(int a, int b) { return a - b; }

static const struct { char sign; int (*function)(int, int); } operations[] = {
    {'+', add}, {'-', subtract}, {'*', multiply}, {'%', remainder_of}};

extern const struct link link_c;
static const struct link link_b = {"b", &link_c};
const struct link link_a = {"a", &link_b};
static const int *const middle = &numbers[1];
static int (*const from_libc)(const char *) = puts;

int main(void) {
  for (unsigned i = 0; i < sizeof operations / sizeof *operations; i++)
    printf("12 %c 4 = %d\n", operations[i].sign, operations[i].function(12, 4));
  printf("shapes:");
  for (const struct shape *const *at = shapes; *at; at++)
    printf(" %s %d", (*at)->name, (*at)->area(*at));
  printf("\nchain:");
  for (const struct link *at = &link_a; at; at = at->next)
    printf(" %s", at->name);
  puts("");
  printf("differences: %d entries\n", (int)(numbers_end - numbers));
  return from_libc == puts && *middle == 20 ? 0 : 1;
}
