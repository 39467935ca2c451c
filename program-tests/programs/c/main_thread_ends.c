//# stdout: main ends its thread
//# stdout: the other thread goes on
//# stdout: handler
/* pthread_exit in main: the process lives until its last thread ends, and then exits with 0. The thread that compiles better what is called
   often went on for ever, and the process with it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t main_thread;
static void handler(void) { puts("handler"); }

__attribute__((noinline)) static int next(volatile int x) { return x + 1; }

static void *run(void *unused) {
  pthread_join(main_thread, NULL);
  puts("the other thread goes on");
  return unused;
}

int main(void) {
  pthread_t thread;
  int x = 0;
  while (x < 1000) x = next(x);
  main_thread = pthread_self();
  atexit(handler);
  puts("main ends its thread");
  pthread_create(&thread, NULL, run, NULL);
  pthread_exit(NULL);
}
