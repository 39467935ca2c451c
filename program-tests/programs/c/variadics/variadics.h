#include <stddef.h>
struct small { int a; };
struct mixed { double d; long l; };
int sum_ints(int count, ...);
double sum_doubles(int count, ...);
void print_mixed(const char *kinds, ...);
void print_structs(int count, ...);
void sum_twice(int count, ...);
int format(char *to, size_t size, const char *text, ...);
