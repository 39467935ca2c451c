//# exit: 3
//# stdout: terminating for: out of a noexcept function
/* A terminate handler of the program's own sees the exception. */
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

static void handle() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception &error) {
    std::printf("terminating for: %s\n", error.what());
  }
  std::exit(3);
}

static void quiet() noexcept { throw std::runtime_error("out of a noexcept function"); }

int main() {
  std::set_terminate(handle);
  quiet();
}
