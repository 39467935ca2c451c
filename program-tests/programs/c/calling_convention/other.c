#include "convention.h"
#include <stdio.h>

void take(struct small s, struct halves h, struct large l) {
  printf("small %d %d; two halves %g %ld; large %ld %ld %ld\n", s.a, s.b, h.real, h.whole, l.values[0], l.values[1],
         l.values[2]);
}
struct halves return_halves(double real, double whole) { return (struct halves){real, (long)whole}; }
struct large return_large(long first) { return (struct large){{first, 2 * first, 3 * first, 4 * first, 5 * first}}; }
void many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, double k, double l, double m, double n,
          double o, double p, double q, double r, double s) {
  printf("many: %d %d %d %d %d %d %d %d %d %d %g %g %g %g %g %g %g %g %g\n", a, b, c, d, e, f, g, h, i, j, k, l, m, n, o,
         p, q, r, s);
}
void narrow(signed char a, unsigned char b, short c, unsigned short d, bool e) {
  printf("narrow: %d %d %d %d %d\n", a, b, c, d, e);
}
void packed(struct packed packed) { printf("packed: %d %d\n", packed.b, packed.c); }
long count_odd(long left, long count) {
  __attribute__((musttail)) return count_even(left - 1, count + 1);
}
long count_even(long left, long count) {
  if (left == 0)
    return count;
  __attribute__((musttail)) return count_odd(left, count);
}
