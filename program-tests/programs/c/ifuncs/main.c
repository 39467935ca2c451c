//# stdout: resolved before main: 1 time
//# stdout: here: chosen 5; elsewhere: chosen 5
//# stdout: one address: yes
//# stdout: through a table: chosen 6
//# stdout: target clones: 4950, elsewhere 4950
//# stdout: cpu is x86-64: yes
/* Functions whose address a resolver chooses when the program is linked. */
#include <stdio.h>

int resolved_times(void);
int chosen(int x);
int call_chosen(int x);
int (*address_elsewhere(void))(int);
int sum(const int *values, int count);
int call_sum(void);

static int (*const table[])(int) = {chosen};

int main(void) {
  int values[100];
  for (int i = 0; i < 100; i++)
    values[i] = i;
  printf("resolved before main: %d time\n", resolved_times() > 0);
  printf("here: chosen %d; elsewhere: chosen %d\n", chosen(4), call_chosen(4));
  printf("one address: %s\n", address_elsewhere() == chosen ? "yes" : "no");
  printf("through a table: chosen %d\n", table[0](5));
  printf("target clones: %d, elsewhere %d\n", sum(values, 100), call_sum());
  printf("cpu is x86-64: %s\n", __builtin_cpu_supports("sse2") ? "yes" : "no");
  return 0;
}
