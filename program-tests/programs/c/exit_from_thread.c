//# stdout: thread exits
//# stdout: handler runs in the thread: yes
//# stdout: destructor
//# exit: 7
/* exit() called by a thread while main waits in pthread_join. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t thread;

static void handler(void) { printf("handler runs in the thread: %s\n", pthread_equal(pthread_self(), thread) ? "yes" : "no"); }
__attribute__((destructor)) static void destructor(void) { puts("destructor"); }

static void *run(void *unused) {
  puts("thread exits");
  exit(7);
  return unused;
}

int main(void) {
  atexit(handler);
  pthread_create(&thread, NULL, run, NULL);
  pthread_join(thread, NULL);
  puts("never reached");
  return 0;
}
