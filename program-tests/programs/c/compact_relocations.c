//# stdout: one two three
//# stdout: 15 from pointers, 7 from a switch, 3 past the end
//# flags: -Wa,--crel,--allow-experimental-crel -ffunction-sections
//# native-link: -fuse-ld=lld
/* Relocations in the compact form, for code, data, addends that grow and shrink, and call frames. */
#include <stdio.h>

static int numbers[] = {1, 2, 3, 4, 5, 6};
static int *const pointers[] = {numbers + 5, numbers, numbers + 3, &numbers[1], numbers + 1};
static const char *const names[] = {"one", "two", "three"};
extern int *end;
int *end = numbers + 6;

__attribute__((noinline)) static int choose(int which) {
  switch (which) {
  case 0: return puts("zero");
  case 1: return numbers[0];
  case 2: return 7;
  case 3: return numbers[which];
  case 4: return puts("four");
  default: return -1;
  }
}

int main(int argc, char **argv) {
  int sum = 0;
  for (unsigned i = 0; i < sizeof pointers / sizeof *pointers; i++) sum += *pointers[i];
  printf("%s %s %s\n", names[0], names[1], names[2]);
  printf("%d from pointers, %d from a switch, %d past the end\n", sum, choose(argc + 1), (int)(end - numbers) - 3);
  return 0;
}
