//# stdout: long double: 0.333333333333333333342, 1.18973149535723176502e+4932
//# stdout: powers: 1606938044258990275541962092341162602522202993782792835301376
//# stdout: int128: 170141183460469231731687303715884105727 / 10^19 = 17014118346046923173
//# stdout: remainder: 1687303715884105727
//# stdout: to double: 1.70141e+38, back: yes
//# stdout: complex: (-7.00,24.00), |3+4i| = 5
//# stdout: rounding: 2 2 -2 4; 3 -3
//# stdout: classes: 1 1 1 0
/* Arithmetic that needs x87 registers or the compiler's own library. */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

static void print(unsigned __int128 value) {
  if (value >= 10)
    print(value / 10);
  putchar('0' + (int)(value % 10));
}

static volatile long double one = 1, three = 3;
static volatile unsigned __int128 ten19 = 10000000000000000000u;
static volatile double complex z = 3 + 4 * I;
static volatile double halves[] = {1.5, 2.5, -2.5, 3.5};

int main(void) {
  unsigned __int128 largest = ~(unsigned __int128)0 >> 1;
  double wide = (double)(largest - (unsigned)ten19 % 2);
  double complex product = z * (3 + 4 * I);
  printf("long double: %.21Lf, %.21Lg\n", one / three, LDBL_MAX);
  printf("powers: %.0Lf\n", powl(2, 200));
  printf("int128: ");
  print(largest);
  printf(" / 10^19 = ");
  print(largest / ten19);
  printf("\nremainder: ");
  print(largest % ten19);
  printf("\nto double: %g, back: %s\n", wide, (unsigned __int128)wide == (unsigned __int128)1 << 127 ? "yes" : "no");
  printf("complex: (%.2f,%.2f), |3+4i| = %g\n", creal(product), cimag(product), cabs(z));
  printf("rounding: %g %g %g %g; %ld %ld\n", rint(halves[0]), rint(halves[1]), rint(halves[2]), rint(halves[3]),
         lround(halves[1]), lround(halves[2]));
  printf("classes: %d %d %d %d\n", isnan(0.0 / (halves[0] - 1.5)) != 0, isinf(1 / (halves[0] - 1.5)) != 0,
         signbit(-0.0) != 0, isnormal(0.0) != 0);
  return 0;
}
