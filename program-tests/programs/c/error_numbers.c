//# stdout: ENOENT: No such file or directory
//# stdout: ERANGE and the limit: yes
//# stdout: EDOM: yes
//# stdout: perror went to stderr
//# stderr: open: Not a directory
/* errno as libc sets it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  volatile double negative = -1;
  long value;
  open("/no/such/file", O_RDONLY);
  printf("ENOENT: %s\n", strerror(errno));
  errno = 0;
  value = strtol("99999999999999999999", NULL, 10);
  printf("ERANGE and the limit: %s\n", errno == ERANGE && value == LONG_MAX ? "yes" : "no");
  errno = 0;
  negative = sqrt(negative);
  printf("EDOM: %s\n", errno == EDOM && negative != negative ? "yes" : "no");
  open("/dev/null/below", O_RDONLY);
  perror("open");
  puts("perror went to stderr");
  return 0;
}
