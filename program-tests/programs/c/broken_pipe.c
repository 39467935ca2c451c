//# signal: 13
//# stderr: SIGPIPE is at its default: yes
/* SIGPIPE has its default action: a program that writes to a closed pipe dies of it. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  int ends[2];
  struct sigaction action;
  sigset_t blocked;
  sigaction(SIGPIPE, NULL, &action);
  sigprocmask(SIG_SETMASK, NULL, &blocked);
  fprintf(stderr, "SIGPIPE is at its default: %s\n",
          action.sa_handler == SIG_DFL && !sigismember(&blocked, SIGPIPE) ? "yes" : "no");
  if (pipe(ends))
    return 2;
  close(ends[0]);
  return write(ends[1], "x", 1) == 1 ? 0 : 1;
}
