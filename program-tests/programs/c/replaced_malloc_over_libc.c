//# stdout: strdup: 1
//# stdout: grown by the library: yes
//# stdout: calloc: zero
//# stdout: all sizes: ok
//# stdout: foreign memory: 0
//# skip executor: refused: the allocation of that process was made before
/* The program's functions keep a mark in front of memory that they have from the C library's own: from the ones behind the
   program's, and from those that cannot be replaced. What libraries free is the program's memory, and no other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK 0x5ca1ab1e0ddba11ul
struct head {
  size_t size;
  unsigned long mark;
};
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_malloc(size_t);
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static volatile int given, foreign;

static void *marked(struct head *head, size_t size) {
  if (!head)
    return NULL;
  *head = (struct head){size, MARK};
  __atomic_fetch_add(&given, 1, __ATOMIC_RELAXED);
  return head + 1;
}
void *malloc(size_t size) {
  if (!next_malloc)
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return marked(next_malloc(size + sizeof(struct head)), size);
}
void *calloc(size_t count, size_t size) { return marked(__libc_calloc(1, count * size + sizeof(struct head)), count * size); }
void free(void *memory) {
  if (!memory)
    return;
  if (!next_free)
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  struct head *head = (struct head *)memory - 1;
  if (head->mark != MARK) {
    foreign++;
    return;
  }
  head->mark = 0;
  next_free(head);
}
void *realloc(void *memory, size_t size) {
  void *moved = marked(__libc_malloc(size + sizeof(struct head)), size);
  if (memory && moved) {
    size_t held = ((struct head *)memory - 1)->size;
    memcpy(moved, memory, held < size ? held : size);
    free(memory);
  }
  return moved;
}

int main(void) {
  int before = given;
  char *text = strdup("twice");
  printf("strdup: %d\n", given - before);
  free(text);

  char *line = malloc(1);
  size_t room = 1;
  FILE *file = fopen("/proc/self/maps", "r");
  int lines = 0;
  while (getline(&line, &room, file) > 0)
    lines++;
  printf("grown by the library: %s\n", lines > 3 ? "yes" : "no");
  free(line);
  fclose(file);

  /* What was freed holds something. */
  memset(text = malloc(1000), 7, 1000);
  free(text);
  text = calloc(10, 100);
  int sum = 0;
  for (int index = 0; index < 1000; index++)
    sum += text[index];
  printf("calloc: %s\n", sum ? "not zero" : "zero");
  free(text);

  /* Every size is asked for often, and given back out of the library. */
  int good = 0;
  for (int round = 0; round < 20; round++)
    for (size_t size = 1; size < 200000; size = size * 3 / 2 + 1) {
      char *made = NULL;
      FILE *stream = open_memstream(&made, &room);
      fprintf(stream, "%*d", (int)size, 1);
      fclose(stream);
      good += room == size && made[size - 1] == '1';
      free(made);
    }
  printf("all sizes: %s\n", good == 20 * 28 ? "ok" : "not ok");
  printf("foreign memory: %d\n", foreign);
  return 0;
}
