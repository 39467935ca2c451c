#include <cstdio>

extern bool in_thread;
struct Object {
  explicit Object(char name) : name(name) {}
  ~Object();
  char name;
  int number = 0;
};
extern thread_local Object a;
Object &b();
inline thread_local int inline_local = 1;
extern constinit thread_local int constant;
int *inline_address();
int a_number_elsewhere();
