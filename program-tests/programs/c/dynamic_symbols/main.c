//# stdout: own function by name: 21
//# stdout: the other file's variable by name: 5
//# stdout: libc's by name: 4
//# stdout: the next definition: 5
//# stdout: a name that is not there: null, and dlerror tells
//# stdout: libm opened: 3.000
//# stdout: own code belongs to an object: yes
/* The dynamic linker's interface finds the program's own symbols, and libraries'. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern int number;
int by_name(int x) { return x * 3; }

/* Hides libc's, which the program can still reach as the next one. */
int getpagesize(void) {
  int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "getpagesize");
  return next() + 5;
}

int main(void) {
  int (*function)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "by_name");
  int *variable = dlsym(RTLD_DEFAULT, "number");
  size_t (*length)(const char *) = (size_t(*)(const char *))dlsym(RTLD_DEFAULT, "strlen");
  void *library = dlopen("libm.so.6", RTLD_NOW);
  double (*root)(double) = library ? (double (*)(double))dlsym(library, "sqrt") : NULL;
  Dl_info info;
  printf("own function by name: %d\n", function ? function(7) : -1);
  printf("the other file's variable by name: %d\n", variable ? *variable : -1);
  printf("libc's by name: %zu\n", length("four"));
  printf("the next definition: %d\n", getpagesize() - 4096);
  printf("a name that is not there: %s, ", dlsym(RTLD_DEFAULT, "there_is_no_such_symbol") ? "found" : "null");
  printf("and dlerror %s\n", dlerror() ? "tells" : "is silent");
  printf("libm opened: %.3f\n", root ? root(9) : -1);
  printf("own code belongs to an object: %s\n", dladdr((void *)dlsym, &info) && info.dli_fname ? "yes" : "no");
  return number - 5;
}
