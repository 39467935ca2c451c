//# flags: -std=c++20
//# stdout: thread 1: + a 1, + b 1
//# stdout: thread 1: - b 1, - a 1
//# stdout: thread 2: + a 2
//# stdout: thread 2: - a 2
//# stdout: thread 3 touches nothing
//# stdout: main: + a 4
//# stdout: inline across files: 5 and 5, one address: yes
//# stdout: constant initialised: 9 then 10
//# stdout: wrapper of another file: 4
//# stdout: leaving main
//# stdout: - a 4
//# stdout: - static
/* thread_local objects are made on first use in each thread and destroyed when it ends, main's before statics. */
#include "objects.h"
#include <thread>

static struct Static {
  ~Static() { std::puts("- static"); }
} a_static;
static int number;

static void run(bool both) {
  number++;
  std::printf("thread %d: + a %d", number, a.number = number);
  if (both)
    std::printf(", + b %d", b().number = number);
  std::printf("\nthread %d:", number);
}

int main() {
  std::thread(run, true).join();
  std::thread(run, false).join();
  std::thread([] { std::printf("thread %d touches nothing\n", ++number); }).join();
  in_thread = false;
  std::printf("main: + a %d\n", a.number = ++number);
  inline_local = 5;
  std::printf("inline across files: %d and %d, one address: %s\n", inline_local, *inline_address(),
              &inline_local == inline_address() ? "yes" : "no");
  std::printf("constant initialised: %d", constant);
  constant++;
  std::printf(" then %d\n", constant);
  std::printf("wrapper of another file: %d\n", a_number_elsewhere());
  std::puts("leaving main");
}
