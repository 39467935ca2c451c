//# stdout: a full line
//# stdout-end: no newline at the end
/* What stdio still holds when main returns is written; a stream without a newline too. */
#include <stdio.h>

int main(void) {
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  printf("a full line\nno newline");
  printf(" at the end");
  return 0;
}
