//# stdout: frames seen: at least 12
//# stdout: all recursive frames are in one function: yes
//# stdout: main is found: yes
//# stdout: forced unwinding ran 10 destructors
//# stdout: cancellation ran a destructor: yes
//# stdout: pthread_exit ran a destructor: yes
//# skip versions: the address of a function is that of the jump to its version, and not where its frame begins
/* The unwinder's own interface, used directly, and forced unwinding. */
#include <cstdio>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

static int frames, in_recursion, destroyed;
static bool found_main;
int main();

static _Unwind_Reason_Code see(_Unwind_Context *context, void *function) {
  void *enclosing = _Unwind_FindEnclosingFunction(reinterpret_cast<void *>(_Unwind_GetIP(context) - 1));
  frames++;
  in_recursion += enclosing == function;
  found_main |= enclosing == reinterpret_cast<void *>(&main);
  return found_main ? _URC_END_OF_STACK : _URC_NO_REASON;
}

__attribute__((noinline)) static int recurse(int depth) {
  if (depth == 0) {
    _Unwind_Backtrace(see, reinterpret_cast<void *>(&recurse));
    return 1;
  }
  volatile int below = recurse(depth - 1);
  return below + 1;
}

struct Object {
  ~Object() { destroyed++; }
};

[[noreturn]] static void leave(int depth) {
  Object object;
  if (depth == 1)
    pthread_exit(nullptr);
  leave(depth - 1);
}

static void *exiting(void *depth) { leave(static_cast<int>(reinterpret_cast<long>(depth))); }
static void *waiting(void *) {
  Object object;
  for (;;)
    pause();
}

int main() {
  recurse(10);
  std::printf("frames seen: at least %d\n", frames < 12 ? frames : 12);
  std::printf("all recursive frames are in one function: %s\n", in_recursion == 11 ? "yes" : "no");
  std::printf("main is found: %s\n", found_main ? "yes" : "no");
  pthread_t thread;
  pthread_create(&thread, nullptr, exiting, reinterpret_cast<void *>(10));
  pthread_join(thread, nullptr);
  std::printf("forced unwinding ran %d destructors\n", destroyed);
  pthread_create(&thread, nullptr, waiting, nullptr);
  pthread_cancel(thread);
  pthread_join(thread, nullptr);
  /* Cancelled before its first statement or within pause: either way no object may be left. */
  std::printf("cancellation ran a destructor: %s\n", destroyed == 10 || destroyed == 11 ? "yes" : "no");
  destroyed = 0;
  pthread_create(&thread, nullptr, exiting, reinterpret_cast<void *>(1));
  pthread_join(thread, nullptr);
  std::printf("pthread_exit ran a destructor: %s\n", destroyed == 1 ? "yes" : "no");
}
