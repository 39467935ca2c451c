//# stdout: copied by the old memcpy: overlapping is fine
//# stdout: old and default memcpy differ: yes
//# stdout: the versions of a definition: 1 and 2
/* `.symver`: a reference to one version of a library's symbol, and a definition that is the default of several. */
#include <stdio.h>
#include <string.h>

extern void *old_memcpy(void *, const void *, size_t);
__asm__(".symver old_memcpy, memcpy@GLIBC_2.2.5");

int versioned(void);
int first_version(void);

int main(void) {
  static char text[40] = "..overlapping is fine";
  void *(*volatile current)(void *, const void *, size_t) = memcpy;
  old_memcpy(text, text + 2, 20);
  printf("copied by the old memcpy: %s\n", text);
  printf("old and default memcpy differ: %s\n", current == old_memcpy ? "no" : "yes");
  printf("the versions of a definition: %d and %d\n", first_version(), versioned());
  return 0;
}
