//# signal: 6
//# stdout: main returns
//# stdout: the destructor throws
//# stderr: terminate called after throwing an instance of 'int'
/* An exception that leaves a static destructor meets the end of the stack below `exit`, as it does natively. */
#include <cstdio>

struct Careless {
  ~Careless() noexcept(false) {
    std::puts("the destructor throws");
    std::fflush(stdout);
    throw 5;
  }
};

static Careless careless;

int main() { std::puts("main returns"); }
