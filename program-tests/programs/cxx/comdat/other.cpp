#include "shared.h"
const Addresses &elsewhere() {
  static Addresses result = addresses();
  return result;
}
void counted_elsewhere() { counted(); }
int through_vtable(const Abstract &object) { return object.number(); }
std::string empty_elsewhere() { return {}; }
