//# stdout: 8 threads, constructed 1 time, all saw 5
//# stdout: throws until it works: 3 attempts, value 3
//# stdout: in order of use: a b c
//# stdout: main ends
//# stdout: ~c ~b ~a
/* Local statics are made once, whoever comes first, tried again after an exception, and destroyed in reverse. */
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

static std::atomic<int> constructed, right, attempts;

static int slow() {
  static int value = [] {
    constructed++;
    for (int i = 0; i < 1000; i++)
      std::this_thread::yield();
    return 5;
  }();
  return value;
}

static int stubborn() {
  static int value = [] {
    if (++attempts < 3)
      throw attempts.load();
    return attempts.load();
  }();
  return value;
}

struct Named {
  explicit Named(char name) : name(name) { std::printf(" %c", name); }
  ~Named() { std::printf("~%c%s", name, name == 'a' ? "\n" : " "); }
  char name;
};
template <char name> static void use() { static Named object(name); }

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++)
    threads.emplace_back([] { right += slow() == 5; });
  for (auto &thread : threads)
    thread.join();
  std::printf("8 threads, constructed %d time, all saw %d\n", constructed.load(), right == 8 ? 5 : -1);
  int value = 0;
  while (!value)
    try {
      value = stubborn();
    } catch (int) {
    }
  std::printf("throws until it works: %d attempts, value %d\n", attempts.load(), value);
  std::printf("in order of use:");
  use<'a'>(), use<'b'>(), use<'c'>();
  std::printf("\nmain ends\n");
}
