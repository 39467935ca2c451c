//# stdout: names: 6Circle 6Square N12_GLOBAL__N_16HiddenE
//# stdout: typeid through a base: Circle yes, Square no
//# stdout: dynamic_cast down: yes, across: yes, wrong: no
//# stdout: to void: yes
//# stdout: reference: std::bad_cast
//# stdout: bad typeid: std::bad_typeid
//# stdout: hash and order agree: yes
//# stdout: fundamental types: yes
//# stdout: library's type made here: St13runtime_error caught
/* Run-time type information of classes that another file defines. */
#include "shapes.h"
#include <cstdio>
#include <stdexcept>
#include <typeindex>

int main() {
  auto circle = make_circle(), square = make_square();
  auto hidden = make_hidden();
  std::printf("names: %s %s %s\n", typeid(*circle).name(), typeid(*square).name(), typeid(*hidden).name());
  std::printf("typeid through a base: Circle %s, Square %s\n", typeid(*circle) == typeid(Circle) ? "yes" : "no",
              typeid(*circle) == typeid(Square) ? "yes" : "no");
  std::printf("dynamic_cast down: %s, across: %s, wrong: %s\n", dynamic_cast<Circle *>(circle.get()) ? "yes" : "no",
              dynamic_cast<Named *>(circle.get()) ? "yes" : "no", dynamic_cast<Square *>(circle.get()) ? "yes" : "no");
  Named *named = dynamic_cast<Named *>(circle.get());
  std::printf("to void: %s\n", dynamic_cast<void *>(named) == dynamic_cast<void *>(circle.get()) ? "yes" : "no");
  try {
    (void)dynamic_cast<Square &>(*circle);
  } catch (const std::bad_cast &error) {
    std::printf("reference: %s\n", error.what());
  }
  Shape *volatile none = nullptr;
  try {
    (void)typeid(*none).name();
  } catch (const std::bad_typeid &error) {
    std::printf("bad typeid: %s\n", error.what());
  }
  std::printf("hash and order agree: %s\n",
              std::type_index(typeid(*circle)) == circle_type() && std::hash<std::type_index>()(circle_type()) == typeid(Circle).hash_code() ? "yes" : "no");
  std::printf("fundamental types: %s\n", int_type() == std::type_index(typeid(int)) ? "yes" : "no");
  try {
    throw_library_error();
  } catch (const std::exception &error) {
    std::printf("library's type made here: %s %s\n", typeid(error).name(), typeid(error) == typeid(std::runtime_error) ? "caught" : "unknown");
  }
}
