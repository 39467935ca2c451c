//# stdout: 6 entries over three files
//# stdout: sum: 63
//# stdout: seen the same from elsewhere: yes
//# stdout: 3 functions run: 111
//# stdout: only here: 2
//# skip archive: a member that only adds to a section is not pulled in, natively either
/* The linker's __start_ and __stop_ symbols delimit what all files put into a section. */
#include "entry.h"
#include <stdio.h>

ENTRY int in_main[] = {1, 2};
HOOK static int hook(void) { return 1; }
PUT(hook);
__attribute__((section("lonely"), used)) static int alone[2] = {4, 5};
extern int __start_lonely[], __stop_lonely[];

int count_elsewhere(void);

int main(void) {
  int sum = 0, total = 0, functions = 0;
  for (const int *at = __start_entries; at < __stop_entries; at++)
    sum += *at;
  printf("%d entries over three files\n", (int)(__stop_entries - __start_entries));
  printf("sum: %d\n", sum);
  printf("seen the same from elsewhere: %s\n", count_elsewhere() == __stop_entries - __start_entries ? "yes" : "no");
  for (hook_function *const *at = __start_hooks; at < __stop_hooks; at++)
    total += (*at)(), functions++;
  printf("%d functions run: %d\n", functions, total);
  printf("only here: %d\n", (int)(__stop_lonely - __start_lonely));
  return 0;
}
