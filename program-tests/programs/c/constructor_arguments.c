//# arg: one
//# stdout: constructor sees 2 arguments, the last: one
//# stdout: and the environment: yes
//# stdout: main sees the same: yes
//# env: TABLET=clay
/* glibc hands constructors what it hands main. */
#include <stdio.h>
#include <string.h>

static char **seen_argv, **seen_envp;

__attribute__((constructor)) static void construct(int argc, char **argv, char **envp) {
  int found = 0;
  seen_argv = argv, seen_envp = envp;
  printf("constructor sees %d arguments, the last: %s\n", argc, argv[argc - 1]);
  for (char **at = envp; *at; at++)
    found |= strcmp(*at, "TABLET=clay") == 0;
  printf("and the environment: %s\n", found ? "yes" : "no");
}

int main(int argc, char **argv, char **envp) {
  printf("main sees the same: %s\n", argc == 2 && argv == seen_argv && envp == seen_envp ? "yes" : "no");
  return 0;
}
