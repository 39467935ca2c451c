//# stdout: own allocations counted: yes
//# stdout: balanced: yes
//# stdout: aligned form: yes
//# stdout: made in the library, freed here: 4
//# skip executor: refused: the allocation of that process was made before
/* The program replaces operator new and delete. */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>

/* Volatile: a compiler may assume that allocating changes nothing else. */
static volatile long made, freed, aligned;

void *operator new(std::size_t size) {
  made = made + 1;
  if (void *memory = std::malloc(size))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept {
  freed = freed + (memory != nullptr);
  std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
  freed = freed + (memory != nullptr);
  std::free(memory);
}
void *operator new(std::size_t size, std::align_val_t align) {
  aligned = aligned + 1;
  return std::aligned_alloc(static_cast<std::size_t>(align), (size + 127) / 128 * 128);
}
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

struct alignas(128) Wide { char bytes[128]; };

int main() {
  long before = made;
  int *volatile number = new int(5);
  std::printf("own allocations counted: %s\n", made == before + 1 ? "yes" : "no");
  long freed_before = freed;
  delete number;
  std::printf("balanced: %s\n", freed == freed_before + 1 ? "yes" : "no");
  Wide *volatile wide = new Wide;
  delete wide;
  std::printf("aligned form: %s\n", aligned == 1 ? "yes" : "no");
  std::ostringstream stream;
  stream << std::string(1000, 'x') << 4;
  std::string text = stream.str();
  std::printf("made in the library, freed here: %c\n", text.back());
}
