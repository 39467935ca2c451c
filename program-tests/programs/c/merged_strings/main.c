//# stdout: barley beer
//# stdout: a tail: beer
//# stdout: wide: 5 𒀀
//# stdout: doubles: 0.1 0.1 2.5e+300
//# stdout: embedded zero: 11
//# stdout: table: zero one two three
/* Constants that compilers put into mergeable sections: strings of several widths, numbers, tables of pointers into them. */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

const char *beer(void);
const wchar_t *wide(void);
double tenth(void);
static volatile double constants[] = {0.1, 2.5e300};
static const char zeros[] = "embedded\0ze";
static const char *const table[] = {"zero", "one", "two", "three"};

int main(void) {
  const char *volatile whole = "barley beer";
  printf("%s\n", whole);
  printf("a tail: %s\n", beer());
  setlocale(LC_ALL, "C.UTF-8");
  printf("wide: %zu %lc\n", wcslen(wide()), (wint_t)wide()[4]);
  printf("doubles: %g %g %g\n", tenth(), constants[0], constants[1]);
  printf("embedded zero: %d\n", (int)(sizeof zeros - 1));
  printf("table:");
  for (int i = 0; i < 4; i++)
    printf(" %s", table[i]);
  puts("");
  return strcmp(beer(), whole + 7);
}
