//# arg: -v
//# arg: --output=tablet.txt
//# arg: first
//# arg: -n
//# arg: 12
//# arg: --verbose
//# arg: second
//# stdout: verbose 2, number 12, output tablet.txt
//# stdout: rest: first second
//# stdout: again from the start: verbose 2
/* getopt_long keeps its state in variables of libc that the program reads and writes. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  static const struct option options[] = {{"verbose", no_argument, NULL, 'v'}, {"output", required_argument, NULL, 'o'}, {0}};
  int verbose = 0, number = 0, letter;
  const char *output = "";
  while ((letter = getopt_long(argc, argv, "vn:o:", options, NULL)) != -1)
    switch (letter) {
    case 'v': verbose++; break;
    case 'n': number = atoi(optarg); break;
    case 'o': output = optarg; break;
    default: return 2;
    }
  printf("verbose %d, number %d, output %s\nrest:", verbose, number, output);
  for (; optind < argc; optind++)
    printf(" %s", argv[optind]);
  optind = 1, verbose = 0;
  while ((letter = getopt_long(argc, argv, "vn:o:", options, NULL)) != -1)
    verbose += letter == 'v';
  printf("\nagain from the start: verbose %d\n", verbose);
  return 0;
}
