#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
FILE **other_stdout(void) { return &stdout; }
char ***other_environ(void) { return &environ; }
int *other_optind(void) { return &optind; }
