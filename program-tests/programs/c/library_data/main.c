//# stdout: stdout is one: yes
//# stdout: environ is one: yes
//# stdout: written here, seen by libc: UTC+1
//# stdout: optind from both files: 5 5
//# stdout: signgam: -1
//# stdout: pointers in data: yes
/* Variables of libc and libm, used directly, written, and pointed at from initialised data. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

FILE **other_stdout(void);
char ***other_environ(void);
int *other_optind(void);
static FILE **const stream = &stdout;
extern char **environ;
extern char **__environ;

int main(void) {
  volatile double negative = -0.5;
  fprintf(stdout, "stdout is one: %s\n", *other_stdout() == stdout && other_stdout() == stream ? "yes" : "no");
  fprintf(*stream, "environ is one: %s\n", *other_environ() == environ && environ == __environ ? "yes" : "no");
  setenv("TZ", "UTC+1-1", 1);
  tzset();
  printf("written here, seen by libc: %s+%ld\n", tzname[0], timezone / 3600);
  optind = 5;
  printf("optind from both files: %d %d\n", optind, *other_optind());
  lgamma(negative);
  printf("signgam: %d\n", signgam);
  printf("pointers in data: %s\n", stream == &stdout ? "yes" : "no");
  return 0;
}
