//# stdout: in a constructor: rounding 0, flags 0, enabled 0, mxcsr 1f80, control 37f
//# stdout: in main: rounding 0, flags 0, enabled 0, mxcsr 1f80, control 37f
//# native-link: -lm
/* Nothing was computed before the program began, as far as the processor's flags tell. */
#define _GNU_SOURCE
#include <fenv.h>
#include <stdio.h>
#include <xmmintrin.h>

struct state {
  int rounding, flags, enabled;
  unsigned mxcsr;
  unsigned short control;
};

static struct state at_start;

static struct state now(void) {
  struct state state = {fegetround(), fetestexcept(FE_ALL_EXCEPT), fegetexcept(), _mm_getcsr(), 0};
  __asm__("fnstcw %0" : "=m"(state.control));
  return state;
}

static void print(const char *where, struct state s) {
  printf("%s: rounding %d, flags %d, enabled %d, mxcsr %x, control %x\n", where, s.rounding, s.flags, s.enabled,
         s.mxcsr, s.control);
}

__attribute__((constructor)) static void start(void) { at_start = now(); }

int main(void) {
  struct state in_main = now();
  print("in a constructor", at_start);
  print("in main", in_main);
  return 0;
}
