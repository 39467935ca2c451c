//# stdout: + second.cpp priority 200
//# stdout: + main.cpp priority 300
//# stdout: + second.cpp priority 400
//# stdout: + main.cpp first
//# stdout: + main.cpp second
//# stdout: dynamically initialised before main: 42
//# stdout: main
//# stdout: + function static
//# stdout: - function static
//# stdout: - main.cpp second
//# stdout: - main.cpp first
//# stdout: - second.cpp priority 400
//# stdout: - main.cpp priority 300
//# stdout: - second.cpp priority 200
//# exit: 6
/* Objects with static storage are constructed by priority over files, in order within one, and destroyed in reverse. */
#include "loud.h"

extern int computed;
__attribute__((init_priority(300))) static Loud third("main.cpp priority 300");
static Loud first("main.cpp first");
static Loud second("main.cpp second");

int main() {
  std::printf("dynamically initialised before main: %d\n", computed);
  std::puts("main");
  static Loud local("function static");
  return 6;
}
