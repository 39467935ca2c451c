//# stdout: out of qsort after 6 comparisons, 0 objects left
//# stdout: out of bsearch: found enough
//# stdout: out of a thread's start: joined
//# stdout: out of pthread_once: once failed, then 1
//# stdout: out of twalk: 3
/* libc's functions that call back let exceptions through. */
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <search.h>
#include <stdexcept>
#include <string>

static int comparisons, objects, attempts, visited;

struct Object {
  Object() { objects++; }
  ~Object() { objects--; }
};

static int throwing(const void *a, const void *b) {
  Object object;
  if (++comparisons == 6)
    throw std::runtime_error("out of qsort");
  return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}
static int enough(const void *, const void *) { throw std::string("found enough"); }
static void once() {
  if (++attempts == 1)
    throw std::logic_error("once failed");
}
static void *thread(void *) {
  try {
    throw 1;
  } catch (int) {
  }
  return nullptr;
}
static int by_value(const void *a, const void *b) { return a < b ? -1 : a > b; }
static void visit(const void *, VISIT, int) {
  if (++visited == 3)
    throw visited;
}

int main() {
  int values[64];
  for (int i = 0; i < 64; i++)
    values[i] = (i * 37) % 64;
  try {
    std::qsort(values, 64, sizeof *values, throwing);
  } catch (const std::runtime_error &error) {
    std::printf("%s after %d comparisons, %d objects left\n", error.what(), comparisons, objects);
  }
  try {
    (void)std::bsearch(&values[3], values, 64, sizeof *values, enough);
  } catch (const std::string &text) {
    std::printf("out of bsearch: %s\n", text.c_str());
  }
  pthread_t id;
  pthread_create(&id, nullptr, thread, nullptr);
  pthread_join(id, nullptr);
  std::puts("out of a thread's start: joined");
  static pthread_once_t control = PTHREAD_ONCE_INIT;
  try {
    pthread_once(&control, once);
  } catch (const std::logic_error &error) {
    std::printf("out of pthread_once: %s", error.what());
  }
  pthread_once(&control, once);
  std::printf(", then %d\n", attempts - 1);
  void *tree = nullptr;
  for (long i = 1; i < 9; i++)
    tsearch(reinterpret_cast<void *>(i), &tree, by_value);
  try {
    twalk(tree, visit);
  } catch (int count) {
    std::printf("out of twalk: %d\n", count);
  }
}
