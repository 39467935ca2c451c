//# arg: plain
//# arg: with two spaces
//# arg: -O0
//# arg: --
//# arg:
//# arg: 𒌷
//# arg: a=b;$HOME 'quoted' "twice" \n
//# stdout: 8 arguments after a name: 7
//# stdout: 1 <plain>
//# stdout: 2 <with two spaces>
//# stdout: 3 <-O0>
//# stdout: 4 <-->
//# stdout: 5 <>
//# stdout: 6 <𒌷>
//# stdout: 7 <a=b;$HOME 'quoted' "twice" \n>
//# stdout: ends with a null pointer: yes
//# stdout: may be written: pl@in
/* argc and argv exactly as a shell would give them. */
#include <stdio.h>

int main(int argc, char **argv) {
  printf("%d arguments after a name: %d\n", argc, argc - (argv[0][0] != 0));
  for (int i = 1; i < argc; i++)
    printf("%d <%s>\n", i, argv[i]);
  printf("ends with a null pointer: %s\n", argv[argc] ? "no" : "yes");
  argv[1][2] = '@';
  printf("may be written: %s\n", argv[1]);
  return 0;
}
