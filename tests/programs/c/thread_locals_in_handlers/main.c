//# stdout: the handler ran in the middle of an allocation: yes
/* A signal handler is the first to touch a thread-local variable, while the allocator holds its lock. */
#define _GNU_SOURCE
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

int main(void) {
  struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  void *kept[64] = {NULL};
  sigaction(SIGPROF, &action, NULL);
  setitimer(ITIMER_PROF, &every, NULL);
  for (long i = 0; i < 3000000; i++) {
    free(kept[i % 64]);
    kept[i % 64] = malloc((size_t)(i * 37 % 4000 + 2000));
  }
  setitimer(ITIMER_PROF, &never, NULL);
  printf("the handler ran in the middle of an allocation: %s\n", ticks > 0 && ticks == ticks_elsewhere ? "yes" : "no");
  return 0;
}
