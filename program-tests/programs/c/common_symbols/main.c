//# flags: -fcommon
//# stdout: shared counter: 3
//# stdout: the larger size wins: yes
//# stdout: initialised elsewhere: 42
//# stdout: aligned to 64: yes
//# stdout: zero: yes
/* Tentative definitions of one variable in several files are one variable, of the largest size and alignment. */
#include <stdint.h>
#include <stdio.h>

int counter;
int buffer[4];
int initialised;
char aligned;
void bump(void);
int *whole_buffer(int *count);

int main(void) {
  int count, *all = whole_buffer(&count), zero = 1;
  for (int i = 0; i < count; i++)
    zero &= all[i] == 0, all[i] = i;
  bump();
  counter++;
  bump();
  printf("shared counter: %d\n", counter);
  printf("the larger size wins: %s\n", all == buffer && count == 1000 ? "yes" : "no");
  printf("initialised elsewhere: %d\n", initialised);
  printf("aligned to 64: %s\n", (uintptr_t)&aligned % 64 == 0 ? "yes" : "no");
  printf("zero: %s\n", zero ? "yes" : "no");
  return 0;
}
