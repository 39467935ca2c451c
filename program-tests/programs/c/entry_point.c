//# entry: launch
//# native-link: -Wl,--defsym=main=launch
//# stdout: launched with 1 argument
//# exit: 3
//# skip archive: the native linker looks for `main` before it opens the archive
/* A program whose entry point has another name. */
#include <stdio.h>

int launch(int argc, char **argv) {
  (void)argv;
  printf("launched with %d argument\n", argc);
  return 3;
}
