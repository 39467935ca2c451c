//# signal: 6
//# stderr: terminate called after throwing an instance of 'int'
/* The same in a thread. */
#include <cstdio>
#include <thread>

struct Loud {
  ~Loud() { std::fputs("unwound\n", stderr); }
};

int main() {
  std::thread([] {
    Loud loud;
    throw 5;
  }).join();
}
