//# stdout: every signal is at its default: yes
//# stdout: raised: 10 once
//# stdout: recovered from a fault at (nil)
//# stdout: overflowed stack caught on its own stack: yes
//# stdout: alarm: 14
/* Handlers for raised and for real faults, on the program's own alternate stack. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t count, last;
static void *volatile address;
static sigjmp_buf escape;
static char *alternate;
static volatile int on_alternate;

static void counting(int signal) { count++, last = signal; }
static void fault(int signal, siginfo_t *info, void *context) {
  char here;
  (void)signal, (void)context;
  address = info->si_addr;
  on_alternate = &here > alternate && &here < alternate + 65536;
  siglongjmp(escape, 1);
}

static int defaults(void) {
  for (int signal = 1; signal < 32; signal++) {
    struct sigaction action;
    if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
      return 0;
  }
  return 1;
}

static int deeper(volatile int depth) {
  volatile char frame[4096];
  frame[depth % 4096] = 1;
  return deeper(depth + 1) + frame[0];
}

int main(void) {
  struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  printf("every signal is at its default: %s\n", defaults() ? "yes" : "no");
  signal(SIGUSR1, counting);
  raise(SIGUSR1);
  printf("raised: %d %s\n", last, count == 1 ? "once" : "not once");

  alternate = malloc(65536);
  sigaltstack(&(stack_t){.ss_sp = alternate, .ss_size = 65536}, NULL);
  sigaction(SIGSEGV, &action, NULL);
  if (!sigsetjmp(escape, 1))
    *(volatile int *)0 = 1;
  printf("recovered from a fault at %p\n", address);
  if (!sigsetjmp(escape, 1))
    deeper(0);
  printf("overflowed stack caught on its own stack: %s\n", on_alternate ? "yes" : "no");

  signal(SIGALRM, counting);
  alarm(1);
  while (last != SIGALRM)
    pause();
  printf("alarm: %d\n", last);
  return 0;
}
