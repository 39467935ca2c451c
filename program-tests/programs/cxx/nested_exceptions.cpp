//# stdout: cannot run
//# stdout:  cannot open tablet 3
//# stdout:   no such tablet
//# stdout: 3 threads, in order: 0 zero 1 one 2 two
//# stdout: kept alive after its block: kept
//# stdout: of another type: 5
//# stdout: current is empty outside: yes
/* Nested exceptions, and exceptions carried from thread to thread. */
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static void open_tablet(int number) {
  try {
    throw std::out_of_range("no such tablet");
  } catch (...) {
    std::throw_with_nested(std::runtime_error("cannot open tablet " + std::to_string(number)));
  }
}

static void print(const std::exception &error, int depth = 0) {
  std::printf("%*s%s\n", depth, "", error.what());
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception &inner) {
    print(inner, depth + 1);
  }
}

int main() {
  try {
    try {
      open_tablet(3);
    } catch (...) {
      std::throw_with_nested(std::logic_error("cannot run"));
    }
  } catch (const std::exception &error) {
    print(error);
  }
  static const char *const names[] = {"zero", "one", "two"};
  std::exception_ptr thrown[3];
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&thrown, i] {
      try {
        throw std::runtime_error(names[i]);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  for (auto &thread : threads)
    thread.join();
  std::printf("3 threads, in order:");
  for (int i = 0; i < 3; i++)
    try {
      std::rethrow_exception(thrown[i]);
    } catch (const std::runtime_error &error) {
      std::printf(" %d %s", i, error.what());
    }
  std::exception_ptr kept;
  try {
    throw std::string("kept");
  } catch (...) {
    kept = std::current_exception();
  }
  try {
    std::rethrow_exception(kept);
  } catch (const std::string &text) {
    std::printf("\nkept alive after its block: %s\n", text.c_str());
  }
  auto made = std::make_exception_ptr(5);
  try {
    std::rethrow_exception(made);
  } catch (int value) {
    std::printf("of another type: %d\n", value);
  }
  std::printf("current is empty outside: %s\n", std::current_exception() ? "no" : "yes");
}
