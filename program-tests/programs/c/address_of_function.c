//# stdout: main is in the program's file: yes
//# stdout: so is a static function: yes
//# stdout: its symbol is not exported: yes
//# stdout: puts is in another: yes
//# stdout: nothing is at 1: yes
/* `dladdr` finds the program's own functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int callback(int x) { return x + 1; }

static const char *yes(int what) { return what ? "yes" : "no"; }

int main(int argc, char **argv) {
  Dl_info of_main, of_callback, of_puts, nothing;
  int (*volatile pointer)(int) = callback;
  int found = dladdr((void *)main, &of_main);
  printf("main is in the program's file: %s\n", yes(argc > 0 && found && !strcmp(of_main.dli_fname, argv[0])));
  found = dladdr((void *)pointer, &of_callback);
  printf("so is a static function: %s\n", yes(found && of_callback.dli_fbase == of_main.dli_fbase));
  printf("its symbol is not exported: %s\n", yes(!of_callback.dli_sname && !of_callback.dli_saddr));
  found = dladdr(dlsym(RTLD_DEFAULT, "puts"), &of_puts);
  printf("puts is in another: %s\n", yes(found && of_puts.dli_fbase != of_main.dli_fbase && !strcmp(of_puts.dli_sname, "puts")));
  printf("nothing is at 1: %s\n", yes(!dladdr((void *)1, &nothing)));
  return 0;
}
