//# stdout: sorted: ant bee cow dog eel fox gnu hen
//# stdout: found: dog at 3
//# stdout: tree: ant bee cow dog eel fox gnu hen
//# stdout: with context: 5 4 3 2 1
//# stdout: once: 1
//# stdout: walked: 3 files
/* libc calls back into the program. */
#define _GNU_SOURCE
#include <ftw.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *animals[] = {"gnu", "bee", "fox", "ant", "eel", "dog", "hen", "cow"};
enum { COUNT = sizeof animals / sizeof *animals };
static int once_count, files;

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }
static int by_text(const void *a, const void *b) { return strcmp(a, b); }
static int scaled(const void *a, const void *b, void *sign) { return (*(const int *)a - *(const int *)b) * *(int *)sign; }
static void visit(const void *node, VISIT order, int depth) {
  (void)depth;
  if (order == postorder || order == leaf)
    printf(" %s", *(const char *const *)node);
}
static void once(void) { once_count++; }
static int file(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)path, (void)status, (void)at;
  files += kind == FTW_F;
  return 0;
}

int main(void) {
  const char *key = "dog", **found;
  void *tree = NULL;
  int numbers[] = {3, 1, 5, 2, 4}, sign = -1;
  static pthread_once_t control = PTHREAD_ONCE_INIT;
  for (int i = 0; i < COUNT; i++)
    tsearch(animals[i], &tree, by_text);
  qsort(animals, COUNT, sizeof *animals, by_name);
  printf("sorted:");
  for (int i = 0; i < COUNT; i++)
    printf(" %s", animals[i]);
  found = bsearch(&key, animals, COUNT, sizeof *animals, by_name);
  printf("\nfound: %s at %d\ntree:", *found, (int)(found - animals));
  twalk(tree, visit);
  qsort_r(numbers, 5, sizeof *numbers, scaled, &sign);
  printf("\nwith context:");
  for (int i = 0; i < 5; i++)
    printf(" %d", numbers[i]);
  pthread_once(&control, once), pthread_once(&control, once);
  printf("\nonce: %d\n", once_count);
  mkdir("d", 0755), mkdir("d/e", 0755);
  for (int i = 0; i < 3; i++) {
    char name[] = "d/e/f0";
    name[5] = (char)('0' + i);
    fclose(fopen(name, "w"));
  }
  nftw("d", file, 8, FTW_PHYS);
  printf("walked: %d files\n", files);
  return 0;
}
