//# stdout: named like the program: yes
//# stdout: so is a thread: yes
/* The system calls the process, and each thread that it starts, after the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
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

int main(void) {
  pthread_t id;
  printf("named like the program: %s\n", is_ours());
  pthread_create(&id, NULL, thread, NULL);
  pthread_join(id, NULL);
  return 0;
}
