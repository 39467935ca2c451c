#include "variadics.h"
#include <stdarg.h>
#include <stdio.h>

static int sum(int count, va_list list) {
  int total = 0;
  while (count--)
    total += va_arg(list, int);
  return total;
}

int sum_ints(int count, ...) {
  va_list list;
  va_start(list, count);
  int total = sum(count, list);
  va_end(list);
  return total;
}

double sum_doubles(int count, ...) {
  double total = 0;
  va_list list;
  va_start(list, count);
  while (count--)
    total += va_arg(list, double);
  va_end(list);
  return total;
}

void print_mixed(const char *kinds, ...) {
  va_list list;
  va_start(list, kinds);
  printf("mixed:");
  for (; *kinds; kinds++)
    switch (*kinds) {
    case 'i': printf(" %d", va_arg(list, int)); break;
    case 'x': printf(" %#x", va_arg(list, unsigned)); break;
    case 'd': printf(" %g", va_arg(list, double)); break;
    default: printf(" %s", va_arg(list, char *));
    }
  va_end(list);
  puts("");
}

void print_structs(int count, ...) {
  va_list list;
  va_start(list, count);
  struct small small = va_arg(list, struct small);
  struct mixed mixed = va_arg(list, struct mixed);
  va_end(list);
  printf("structs: %d %g %ld\n", small.a, mixed.d, mixed.l);
}

void sum_twice(int count, ...) {
  va_list list, copy;
  va_start(list, count);
  va_copy(copy, list);
  int first = sum(count, list), second = sum(count, copy);
  va_end(copy);
  va_end(list);
  printf("copied: %d %d\n", first, second);
}

int format(char *to, size_t size, const char *text, ...) {
  va_list list;
  va_start(list, text);
  int length = vsnprintf(to, size, text, list);
  va_end(list);
  return length;
}
