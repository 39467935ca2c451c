//# stdout: main ends its thread
//# stdout: the other thread goes on
//# stdout: handler
/* pthread_exit in main: the process lives until its last thread ends, and then exits with 0. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t main_thread;
static void handler(void) { puts("handler"); }

static void *run(void *unused) {
  pthread_join(main_thread, NULL);
  puts("the other thread goes on");
  return unused;
}

int main(void) {
  pthread_t thread;
  main_thread = pthread_self();
  atexit(handler);
  puts("main ends its thread");
  pthread_create(&thread, NULL, run, NULL);
  pthread_exit(NULL);
}
