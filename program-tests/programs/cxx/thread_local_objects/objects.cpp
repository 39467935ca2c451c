#include "objects.h"

bool in_thread = true;
thread_local Object a('a');
constinit thread_local int constant = 9;
static thread_local bool first_here = true;
Object &b() {
  static thread_local Object object('b');
  return object;
}
Object::~Object() {
  if (in_thread)
    std::printf("%s - %c %d%s", first_here ? "" : ",", name, number, name == 'a' ? "\n" : "");
  else
    std::printf("- %c %d\n", name, number);
  first_here = false;
}
int *inline_address() { return &inline_local; }
int a_number_elsewhere() { return a.number; }
