//# stdout: the handler ran in the middle of an allocation: yes
//# stdout: and on other threads: yes
/* A signal handler is the first to touch a thread-local variable, while the allocator holds its lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

extern __thread volatile long ticks_elsewhere;
static __thread volatile long ticks;

static void tick(int signal) {
  (void)signal;
  ticks++, ticks_elsewhere++;
}

static void allocate(long rounds) {
  void *kept[64] = {NULL};
  for (long i = 0; i < rounds; i++) {
    free(kept[i % 64]);
    kept[i % 64] = malloc((size_t)(i * 37 % 4000 + 2000));
  }
}

static void *thread(void *good) {
  sigset_t profiling;
  allocate(200000);
  sigemptyset(&profiling);
  sigaddset(&profiling, SIGPROF);
  pthread_sigmask(SIG_BLOCK, &profiling, NULL);
  if (ticks != ticks_elsewhere)
    *(int *)good = 0;
  return good;
}

int main(void) {
  struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  int good = 1;
  sigaction(SIGPROF, &action, NULL);
  setitimer(ITIMER_PROF, &every, NULL);
  allocate(3000000);
  printf("the handler ran in the middle of an allocation: %s\n", ticks > 0 && ticks == ticks_elsewhere ? "yes" : "no");
  for (int round = 0; round < 10; round++) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
      pthread_create(&threads[i], NULL, thread, &good);
    for (int i = 0; i < 3; i++)
      pthread_join(threads[i], NULL);
  }
  setitimer(ITIMER_PROF, &never, NULL);
  printf("and on other threads: %s\n", good ? "yes" : "no");
  return 0;
}
