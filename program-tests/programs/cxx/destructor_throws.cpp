//# signal: 6
//# stdout: caught once: 1
//# stderr: terminate called after throwing an instance of 'int'
/* A second exception while the first one unwinds is the end. */
#include <cstdio>

struct Careful {
  ~Careful() noexcept(false) { throw 1; }
};

int main() {
  try {
    Careful alone;
  } catch (int value) {
    std::printf("caught once: %d\n", value);
    std::fflush(stdout);
  }
  try {
    Careful unwinding;
    throw 2;
  } catch (...) {
    std::puts("never");
  }
}
