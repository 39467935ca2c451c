//# env: URUK_CITY=walls of Uruk
//# env: EMPTY=
//# stdout: getenv: walls of Uruk
//# stdout: empty is there: yes; absent: yes
//# stdout: envp is environ: yes
//# stdout: changed: gates of Uruk
//# stdout: the array follows: yes
//# stdout: a child sees it: gates of Uruk
/* The environment through getenv, envp and environ, and its changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static int has(const char *entry) {
  for (char **at = environ; *at; at++)
    if (strcmp(*at, entry) == 0)
      return 1;
  return 0;
}

int main(int argc, char **argv, char **envp) {
  (void)argc, (void)argv;
  printf("getenv: %s\n", getenv("URUK_CITY"));
  printf("empty is there: %s; absent: %s\n", getenv("EMPTY") && !*getenv("EMPTY") ? "yes" : "no",
         getenv("NO_SUCH_NAME") ? "no" : "yes");
  printf("envp is environ: %s\n", envp == environ ? "yes" : "no");
  setenv("URUK_CITY", "gates of Uruk", 1);
  printf("changed: %s\n", getenv("URUK_CITY"));
  printf("the array follows: %s\n", has("URUK_CITY=gates of Uruk") ? "yes" : "no");
  fflush(stdout);
  return system("echo \"a child sees it: $URUK_CITY\"");
}
