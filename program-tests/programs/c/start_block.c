//# arg: one
//# arg: two
//# stdout: initialiser: 3 one 1, in a row 1
//# stdout: vector: page 1, random 1, name 1, its headers 1, as getauxval says 1
//# stdout: main: same vectors 1, environ 1, strings in a row 1
//# stdout: title: a title over the arguments and the environment
//# stdout: environment: kept 1, set 1 gone 1, main's vector stays 1
/* The block that the system lays out for a program: Go's runtime reads it from argv on, and servers write titles over it. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

extern char **environ, **__environ;
static int argc_at_start;
static char **argv_at_start, **envp_at_start;
static void begin(int argc, char **argv, char **envp) {
  argc_at_start = argc;
  argv_at_start = argv;
  envp_at_start = envp;
}
__attribute__((section(".init_array"), used)) static void (*const first)(int, char **, char **) = begin;

static unsigned long entry(Elf64_auxv_t *vector, unsigned long type) {
  for (; vector->a_type; vector++)
    if (vector->a_type == type)
      return vector->a_un.a_val;
  return 0;
}

static int is_first(struct dl_phdr_info *info, size_t size, void *headers) {
  const Elf64_Phdr *header = headers;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      for (int j = 0; j < 16; j++)
        if (header[j].p_type == PT_DYNAMIC)
          return 1 + (header[j].p_vaddr == info->dlpi_phdr[i].p_vaddr);
  return 1;
}

int main(int argc, char **argv, char **envp) {
  printf("initialiser: %d %s %d, in a row %d\n", argc_at_start, argv_at_start[1], !argv_at_start[argc_at_start], envp_at_start == argv_at_start + argc_at_start + 1);
  char **end = envp_at_start;
  while (*end)
    end++;
  Elf64_auxv_t *vector = (Elf64_auxv_t *)(end + 1);
  unsigned long headers = entry(vector, AT_PHDR);
  printf("vector: page %d, random %d, name %d, its headers %d, as getauxval says %d\n", entry(vector, AT_PAGESZ) == 4096, entry(vector, AT_RANDOM) == getauxval(AT_RANDOM),
         !strcmp((char *)entry(vector, AT_EXECFN), (char *)getauxval(AT_EXECFN)), dl_iterate_phdr(is_first, (void *)headers) == 2,
         headers == getauxval(AT_PHDR) && entry(vector, AT_PHNUM) == getauxval(AT_PHNUM) && entry(vector, AT_ENTRY) == getauxval(AT_ENTRY));
  int in_a_row = ((long *)argv)[-1] == argc && (!*envp || argv[argc - 1] + strlen(argv[argc - 1]) + 1 == envp[0]);
  for (int i = 1; i < argc; i++)
    in_a_row &= argv[i] == argv[i - 1] + strlen(argv[i - 1]) + 1;
  for (int i = 1; envp[0] && envp[i]; i++)
    in_a_row &= envp[i] == envp[i - 1] + strlen(envp[i - 1]) + 1;
  printf("main: same vectors %d, environ %d, strings in a row %d\n", argc == argc_at_start && argv == argv_at_start && envp == envp_at_start, envp == environ && environ == __environ, in_a_row);
  setenv("SET_BY_THE_PROGRAM", "new", 1);
  int is_kept = envp == envp_at_start && environ != envp;
  char *last = argv[argc - 1];
  for (int i = 0; envp[i]; i++)
    last = envp[i];
  size_t room = last + strlen(last) + 1 - argv[0];
  environ = (char *[]){"SET_BY_THE_PROGRAM=new", NULL};
  snprintf(argv[0], room, "a title over the arguments and the environment");
  printf("title: %s\n", argv[0]);
  unsetenv("NONE");
  printf("environment: kept %d, set %d gone %d, main's vector stays %d\n", is_kept, getenv("SET_BY_THE_PROGRAM") && !strcmp(getenv("SET_BY_THE_PROGRAM"), "new"), !getenv("PATH"), envp == envp_at_start);
  return 0;
}
