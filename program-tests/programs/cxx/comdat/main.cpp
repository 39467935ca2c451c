//# flags: -std=c++17
//# stdout: inline function: one address yes, its static counts 3
//# stdout: inline variable: one address yes, value 11, constructed 1 time
//# stdout: template instance: one address yes
//# stdout: static member of a template: one address yes, value 2
//# stdout: local static of a template: one address yes
//# stdout: type_info: one address yes
//# stdout: lambda in an inline function: one type yes
//# stdout: vtable of an inline class: 7
//# stdout: string shared with the library: yes
/* What several files define alike is one thing in the program. */
#include "shared.h"

int main() {
  counted(), counted();
  counted_elsewhere();
  auto &other = elsewhere();
  auto mine = addresses();
  auto same = [](const void *a, const void *b) { return a == b ? "yes" : "no"; };
  std::printf("inline function: one address %s, its static counts %d\n", same(mine.function, other.function), counted() - 1);
  variable.value++;
  std::printf("inline variable: one address %s, value %d, constructed %d time\n", same(mine.variable, other.variable),
              variable.value, Inline::constructed);
  std::printf("template instance: one address %s\n", same(mine.instance, other.instance));
  Holder<int>::value = 2;
  std::printf("static member of a template: one address %s, value %d\n", same(mine.member, other.member),
              *static_cast<const int *>(other.member));
  std::printf("local static of a template: one address %s\n", same(mine.local, other.local));
  std::printf("type_info: one address %s\n", same(mine.type, other.type));
  std::printf("lambda in an inline function: one type %s\n", *mine.lambda == *other.lambda ? "yes" : "no");
  std::printf("vtable of an inline class: %d\n", through_vtable(Concrete()));
  std::printf("string shared with the library: %s\n", empty_elsewhere() == std::string() ? "yes" : "no");
}
