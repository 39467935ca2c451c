//# stdout: named like the program: yes
//# stdout: so is a thread: yes
//# stdout: so is what was executed: yes
/* The system calls the process, and each thread that it starts, after the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

static const char *is_ours(void) {
  char name[16] = "", expected[16] = "";
  prctl(PR_GET_NAME, name);
  strncpy(expected, program_invocation_short_name, sizeof expected - 1);
  return strcmp(name, expected) == 0 ? "yes" : "no";
}

static void *thread(void *unused) {
  printf("so is a thread: %s\n", is_ours());
  return unused;
}

int main(int argc, char **argv) {
  pthread_t id;
  printf("named like the program: %s\n", is_ours());
  pthread_create(&id, NULL, thread, NULL);
  pthread_join(id, NULL);
  /* A changed environment does not change it. */
  setenv("SOMETHING", "NEW", argc);
  const char *executed = (const char *)getauxval(AT_EXECFN);
  printf("so is what was executed: %s\n", strcmp(executed, argv[0]) == 0 ? "yes" : "no");
  return 0;
}
