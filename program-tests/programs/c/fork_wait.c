//# stdout: child: 42, private 2, shared 7
//# stdout: parent: child exited with 42; private 1, shared 7
//# stdout: killed child: signal 9
//# stdout: threads in the child: 3
//# stdout: 20 children: sum 190
//# stdout: exec: hello
//# stdout: atexit in the parent alone: 1
//# skip executor-lazy: a child of the process has no compiler
/* A forked child runs the same code on its own data. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int data = 1, handlers;
static pid_t parent;

static void handler(void) {
  handlers++;
  if (getpid() == parent)
    printf("atexit in the parent alone: %d\n", handlers);
}
static int first_called_in_child(int x) { return x * 21; }
static void *thread(void *argument) {
  __atomic_fetch_add((int *)argument, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

int main(void) {
  int status, sum = 0, *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child;
  parent = getpid();
  atexit(handler);
  fflush(stdout);
  if ((child = fork()) == 0) {
    data = 2, *shared = 7;
    printf("child: %d, private %d, shared %d\n", first_called_in_child(2), data, *shared);
    fflush(stdout);
    _exit(42);
  }
  waitpid(child, &status, 0);
  printf("parent: child exited with %d; private %d, shared %d\n", WEXITSTATUS(status), data, *shared);
  fflush(stdout);

  if ((child = fork()) == 0)
    for (;;)
      pause();
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  printf("killed child: signal %d\n", WTERMSIG(status));
  fflush(stdout);

  if ((child = fork()) == 0) {
    pthread_t threads[3];
    int count = 0;
    for (int i = 0; i < 3; i++)
      pthread_create(&threads[i], NULL, thread, &count);
    for (int i = 0; i < 3; i++)
      pthread_join(threads[i], NULL);
    printf("threads in the child: %d\n", count);
    exit(0); /* runs the handler and flushes */
  }
  waitpid(child, &status, 0);

  for (int i = 0; i < 20; i++)
    if (fork() == 0)
      _exit(i);
  while (wait(&status) > 0)
    sum += WEXITSTATUS(status);
  printf("20 children: sum %d\n", sum);
  fflush(stdout);

  if ((child = fork()) == 0) {
    execlp("echo", "echo", "exec: hello", NULL);
    _exit(1);
  }
  waitpid(child, &status, 0);
  return 0;
}
