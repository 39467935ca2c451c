//# signal: 8
/* SIGFPE, from a thread. */
#include <pthread.h>

static volatile int zero;

static void *divide(void *unused) {
  zero = 1000 / zero;
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, divide, 0);
  pthread_join(thread, 0);
  return 0;
}
