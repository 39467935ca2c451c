//# skip archive: whether the weak or the strong member is pulled in depends on their order
//# stdout: the strong one, from strong.c
//# stdout: only the weak one exists
//# stdout: all agree on the address: yes
//# stdout: variable: 2
/* A strong definition replaces weak ones, for every file that refers to it; alone, a weak one stands. */
#include <stdio.h>

const char *who(void);
const char *(*who_seen_by_weak(void))(void);
const char *lonely(void);
extern int variable;

int main(void) {
  puts(who());
  puts(lonely());
  printf("all agree on the address: %s\n", who_seen_by_weak() == who ? "yes" : "no");
  printf("variable: %d\n", variable);
  return 0;
}
