//# stdout: Top Left Right Bottom
//# stdout: one top: yes
//# stdout: covariant: bottom
//# stdout: through each base: 4 4 4 4
//# stdout: member pointers: 4 11
//# stdout: calls while constructing: top top bottom
//# stdout: ~Bottom ~Right ~Left ~Top
//# stdout: defaulted comparison of pointers: yes
/* Virtual bases whose classes are spread over two files; construction vtables and thunks. */
#include "diamond.h"

Bottom::Bottom() { std::printf(" Bottom\n"); }
Bottom::~Bottom() { std::printf("~Bottom"); }
Bottom *Bottom::clone() { return this; }

int main() {
  auto *bottom = new Bottom;
  bottom->value = 4;
  Left *left = bottom;
  Right *right = bottom;
  std::printf("one top: %s\n", static_cast<Top *>(left) == static_cast<Top *>(right) ? "yes" : "no");
  std::printf("covariant: %s\n", static_cast<Top *>(bottom)->clone()->name());
  std::printf("through each base: %d %d %d %d\n", bottom->get(), left->get(), right->get(), static_cast<Top *>(right)->get());
  int (Top::*function)() = &Top::get;
  int Right::*data = &Right::extra;
  std::printf("member pointers: %d %d\n", (right->*function)(), bottom->*data);
  std::printf("calls while constructing: %s %s %s\n", bottom->seen_by_top, bottom->seen_by_left, bottom->name());
  Top *top = bottom;
  destroy(top);
  std::printf("defaulted comparison of pointers: %s\n", &Left::get == &Top::get ? "yes" : "no");
}
