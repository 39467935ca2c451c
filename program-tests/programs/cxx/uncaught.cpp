//# signal: 6
//# stdout: before
//# stderr: terminate called after throwing an instance of 'std::runtime_error'
//# stderr: what():  nobody listens
/* An exception that nobody catches ends the program through terminate, before any frame is unwound. */
#include <cstdio>
#include <stdexcept>

struct Loud {
  ~Loud() { std::fputs("unwound\n", stderr); }
};

int main() {
  Loud loud;
  std::puts("before");
  std::fflush(stdout);
  throw std::runtime_error("nobody listens");
}
