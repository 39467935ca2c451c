//# signal: 6
//# stderr: terminate called after throwing an instance of 'std::length_error'
//# stderr: what():  in a static initialiser
/* An exception out of a static initialiser: main never runs. */
#include <cstdio>

int use();

int main() {
  std::puts("main ran");
  return use();
}
