//# stdout: direct 1 2 3
//# stdout: out of 50 frames: 50
//# stdout: kept in memory: 8
//# stdout: signal mask restored: yes
//# stdout: ten thousand times: 10000
/* setjmp and longjmp, shallow and deep, and with the signal mask. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static jmp_buf buffer;
static sigjmp_buf signal_buffer;

static int deep(int depth) {
  if (depth == 50)
    longjmp(buffer, depth);
  return deep(depth + 1) + 1;
}

int main(void) {
  volatile int kept = 0, times = 0;
  int value;
  sigset_t set, now;
  printf("direct");
  if ((value = setjmp(buffer)) < 3) {
    printf(" %d", value + 1);
    longjmp(buffer, value + 1);
  }
  puts("");
  if ((value = setjmp(buffer)) == 0)
    deep(0);
  printf("out of 50 frames: %d\n", value);
  kept = 3;
  if (setjmp(buffer) == 0) {
    kept += 5;
    longjmp(buffer, 1);
  }
  printf("kept in memory: %d\n", kept);
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  if (sigsetjmp(signal_buffer, 1) == 0) {
    sigprocmask(SIG_BLOCK, &set, NULL);
    siglongjmp(signal_buffer, 1);
  }
  sigprocmask(SIG_SETMASK, NULL, &now);
  printf("signal mask restored: %s\n", sigismember(&now, SIGUSR1) ? "no" : "yes");
  while (times < 10000)
    if (setjmp(buffer) == 0)
      longjmp(buffer, 1);
    else
      times++;
  printf("ten thousand times: %d\n", times);
  return 0;
}
