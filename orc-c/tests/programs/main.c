// Runs a program that is linked with it, or that lies in the library that is named.
#include <dlfcn.h>
#include <stdio.h>

#ifdef LINKED
int run(void);
#endif

int main(int argc, char **argv) {
#ifdef LINKED
  return run();
#else
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  return ((int (*)(void))dlsym(library, "run"))();
#endif
}
