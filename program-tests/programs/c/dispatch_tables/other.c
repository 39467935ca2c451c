#include "tables.h"
#include <stddef.h>
int multiply(int a, int b) { return a * b; }
int remainder_of(int a, int b) { return a % b; }
static int circle(const struct shape *shape) { return 3 * shape->size * shape->size; }
static int square(const struct shape *shape) { return shape->size * shape->size; }
static const struct shape one = {"circle", circle, 1}, two = {"square", square, 4};
const struct shape *const shapes[] = {&one, &two, NULL};
const int numbers[3] = {10, 20, 30};
const int *const numbers_end = numbers + 3;
const struct link link_c = {"c", NULL};
