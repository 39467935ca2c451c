/* Thread-local variables of every kind, for every model. */
#include <cstdio>

static int target;
struct Loud {
  int value;
  const char *name;
  Loud();
  ~Loud() { std::printf("%s ends with %d\n", name, value); }
};
extern "C" {
__thread int first = 5;
}
static __thread int *pointer = &target;
static __thread long own = 7;
static __thread char zeros[300];
alignas(64) __thread char aligned[64] = "aligned";
static thread_local Loud loud;

Loud::Loud() : value(first * 100), name("nobody") {}

extern "C" void check(const char *name) {
  int sum = 0;
  for (char byte : zeros) sum += byte;
  bool straight = reinterpret_cast<unsigned long>(aligned) % 64 == 0;
  std::printf("%s: %d %s %ld %d %s %s %d\n", name, first, pointer == &target ? "target" : "other", own, sum,
              straight ? "straight" : "askew", aligned, loud.value);
  first++, own++, zeros[150]++, loud.value++;
  pointer = nullptr, aligned[0] = 'A', loud.name = name;
}

extern "C" void *where() { return &first; }
