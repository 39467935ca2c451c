#include <stdexcept>

static int broken() { throw std::length_error("in a static initialiser"); }
int value = broken();
int use() { return value; }
