//# stdout: absent function: null
//# stdout: absent variable: null
//# stdout: present elsewhere: 5
//# stdout: libc's: present
/* A weak reference to nothing is null; to something in another file, or in libc, it is that. */
#include <stdio.h>

__attribute__((weak)) int absent(void);
__attribute__((weak)) extern int absent_variable;
__attribute__((weak)) int present(void);
__attribute__((weak)) int puts(const char *);
int force(void);

int main(void) {
  printf("absent function: %s\n", absent ? "there" : "null");
  printf("absent variable: %s\n", &absent_variable ? "there" : "null");
  printf("present elsewhere: %d\n", present ? present() : -1);
  printf("libc's: %s\n", puts ? "present" : "null");
  return force();
}
