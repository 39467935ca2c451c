#include <stdbool.h>
struct small { int a; short b; };
struct halves { double real; long whole; };
struct large { long values[5]; };
struct __attribute__((packed)) packed { char a; int b; short c; };
void take(struct small small, struct halves halves, struct large large);
struct halves return_halves(double real, double whole);
struct large return_large(long first);
void many(int, int, int, int, int, int, int, int, int, int, double, double, double, double, double, double, double, double,
          double);
void narrow(signed char a, unsigned char b, short c, unsigned short d, bool e);
void packed(struct packed packed);
long count_even(long left, long count);
long count_odd(long left, long count);
