//# stdout: strdup: 1
//# stdout: getline: 1 or more, text long line of input
//# stdout: asprintf: 1 or more, 42 is the answer
//# stdout: fopen: 1 or more
//# stdout: realpath: 1 or more, /
//# stdout: open_memstream: 1 or more, streamed
//# stdout: allocated here, grown by the library: yes
//# stdout: thread: ok
//# stdout: aligned: 1, usable 100
//# stdout: dlopen of nothing: told
//# stdout: qsort of much: 1 or more
//# stdout: foreign memory: 0
//# stdin: long line of input
//# skip executor: refused: the allocation of that process was made before
/* The program brings an allocator of its own, which knows its memory by a mark in front of it. Natively everything in the
   process uses it: what the C library allocates is given out and taken back here. Memory without the mark never comes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK 0x5ca1ab1e0ddba11ul
struct head {
  size_t size;
  unsigned long mark;
};
static char pool[64 << 20] __attribute__((aligned(4096)));
static size_t used;
static volatile int given, taken, foreign, aligned;

static void *take(size_t align, size_t size) {
  if (align < sizeof(struct head))
    align = sizeof(struct head);
  size_t room = size + 2 * align + sizeof(struct head);
  size_t start = __atomic_fetch_add(&used, (room + 63) / 64 * 64, __ATOMIC_RELAXED);
  if (start + room > sizeof pool) {
    errno = ENOMEM;
    return NULL;
  }
  char *memory = (char *)(((size_t)pool + start + sizeof(struct head) + align - 1) / align * align);
  *((struct head *)memory - 1) = (struct head){size, MARK};
  __atomic_fetch_add(&given, 1, __ATOMIC_RELAXED);
  return memory;
}
static struct head *head_of(void *memory) {
  struct head *head = (struct head *)memory - 1;
  if ((char *)memory < pool || (char *)memory >= pool + sizeof pool || head->mark != MARK) {
    __atomic_fetch_add(&foreign, 1, __ATOMIC_RELAXED);
    static struct head none;
    return &none;
  }
  return head;
}
void *malloc(size_t size) { return take(16, size); }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void free(void *memory) {
  if (memory) {
    head_of(memory)->mark = MARK;
    taken++;
  }
}
void *realloc(void *memory, size_t size) {
  void *moved = take(16, size);
  if (memory && moved) {
    size_t held = head_of(memory)->size;
    memcpy(moved, memory, held < size ? held : size);
    free(memory);
  }
  return moved;
}
void *memalign(size_t align, size_t size) {
  aligned++;
  return take(align, size);
}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **memory, size_t align, size_t size) {
  *memory = memalign(align, size);
  return *memory ? 0 : ENOMEM;
}
size_t malloc_usable_size(void *memory) { return memory ? head_of(memory)->size : 0; }

static int since(int *before) {
  int count = given - *before;
  *before = given;
  return count;
}
static const char *many(int count) { return count > 0 ? "1 or more" : "none"; }
static void *other(void *argument) {
  free(strdup(argument));
  return strdup("ok");
}
static int backwards(const void *left, const void *right) { return *(const int *)right - *(const int *)left; }

int main(void) {
  int before = given;
  char *text = strdup("twice");
  int count = since(&before);
  printf("strdup: %d\n", count);
  free(text);

  since(&before);
  char *line = NULL;
  size_t room = 0;
  ssize_t length = getline(&line, &room, stdin);
  line[length > 0 ? length - 1 : 0] = 0;
  printf("getline: %s, text %s\n", many(since(&before)), line);
  free(line);

  since(&before);
  if (asprintf(&text, "%d is the answer", 42) < 0)
    return 1;
  printf("asprintf: %s, %s\n", many(since(&before)), text);
  free(text);

  since(&before);
  FILE *file = fopen("/dev/null", "w");
  printf("fopen: %s\n", many(since(&before)));
  fclose(file);

  since(&before);
  text = realpath("/usr/..", NULL);
  printf("realpath: %s, %s\n", many(since(&before)), text);
  free(text);

  since(&before);
  char *stream = NULL;
  file = open_memstream(&stream, &room);
  fputs("streamed", file);
  fclose(file);
  printf("open_memstream: %s, %s\n", many(since(&before)), stream);
  free(stream);

  file = fopen("/proc/self/maps", "r");
  line = malloc(1);
  room = 1;
  ssize_t seen = getline(&line, &room, file);
  printf("allocated here, grown by the library: %s\n", seen > 1 && malloc_usable_size(line) >= (size_t)seen ? "yes" : "no");
  free(line);
  fclose(file);

  pthread_t thread;
  void *answer;
  pthread_create(&thread, NULL, other, "argument");
  pthread_join(thread, &answer);
  printf("thread: %s\n", (char *)answer);
  free(answer);

  int aligned_before = aligned;
  void *wide = aligned_alloc(4096, 100);
  printf("aligned: %d, usable %zu\n", aligned - aligned_before, malloc_usable_size(wide));
  free(wide);

  void *none = dlopen("libnothing-of-that-name.so", RTLD_NOW);
  const char *why = dlerror();
  printf("dlopen of nothing: %s\n", !none && why && strstr(why, "libnothing") ? "told" : "not told");

  since(&before);
  static int numbers[100000];
  for (int index = 0; index < 100000; index++)
    numbers[index] = index;
  qsort(numbers, 100000, sizeof *numbers, backwards);
  printf("qsort of much: %s\n", many(since(&before)));

  printf("foreign memory: %d\n", foreign);
  return numbers[0] == 99999 ? 0 : 1;
}
