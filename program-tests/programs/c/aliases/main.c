//# stdout: function and alias: 12 12, one address: yes
//# stdout: weak alias replaced: 99
//# stdout: hidden alias used inside: 12
//# stdout: variable alias: 8, one address: yes
/* Aliases of functions and variables, defined in one file and used in another. */
#include <stdio.h>

int real(int x);
int other_name(int x);
int replaceable(int x);
int inside(void);
/* Volatile, because compilers take them for two variables. */
extern volatile int number, same_number;

int replaceable(int x) { return x * 33; }

/* Volatile, so that the comparison is made when the program runs. */
static int (*volatile one)(int) = real, (*volatile two)(int) = other_name;
static volatile int *volatile three = &number, *volatile four = &same_number;

int main(void) {
  printf("function and alias: %d %d, one address: %s\n", real(3), other_name(3), one == two ? "yes" : "no");
  printf("weak alias replaced: %d\n", replaceable(3));
  printf("hidden alias used inside: %d\n", inside());
  same_number++;
  printf("variable alias: %d, one address: %s\n", number, three == four ? "yes" : "no");
  return 0;
}
