#include "loud.h"
#include <cstdlib>

__attribute__((init_priority(400))) static Loud later("second.cpp priority 400");
__attribute__((init_priority(200))) static Loud earlier("second.cpp priority 200");
static int compute() { return std::atoi("42"); }
int computed = compute();
