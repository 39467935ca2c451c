#include "exceptions.h"

void throw_int(int value) { throw value; }
void throw_derived(int value) { throw Derived(value, "derived from far away"); }
void throw_pointer() { throw "thrown pointer"; }
void rethrow_as(const char *text) {
  try {
    throw;
  } catch (Derived &error) {
    error.text = text;
    throw;
  }
}
