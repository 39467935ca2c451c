//# stdout: a string grows in the library: counted
//# stdout: a stream: counted
//# stdout: a locale: counted
//# stdout: made in the library, deleted here: paths 3
//# stdout: made here, deleted in the library: yes
//# stdout: a thread: counted
//# stdout: sorted: yes
//# stdout: made and deleted: balanced
//# stdout: foreign memory: 0
//# skip executor: refused: the allocation of that process was made before
/* The program replaces operator new and delete, and libstdc++ uses them: natively the executable's definitions count for
   the whole process. Each piece of memory carries a mark, so what came from elsewhere is noticed. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <locale>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {
const unsigned long mark = 0x5ca1ab1e0ddba11ul;
/* Volatile: a compiler may assume that allocating changes nothing else. */
volatile long made, deleted, foreign;

struct Head {
  void *start;
  unsigned long mark;
};

void *give(std::size_t size, std::size_t align) {
  char *start = static_cast<char *>(std::malloc(size + align + sizeof(Head)));
  if (!start)
    throw std::bad_alloc();
  std::size_t address = reinterpret_cast<std::size_t>(start) + sizeof(Head);
  address = (address + align - 1) / align * align;
  Head *head = reinterpret_cast<Head *>(address) - 1;
  *head = Head{start, mark};
  __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
  return head + 1;
}

void take(void *memory) {
  if (!memory)
    return;
  Head *head = static_cast<Head *>(memory) - 1;
  if (head->mark != mark) {
    __atomic_fetch_add(&foreign, 1, __ATOMIC_RELAXED);
    return;
  }
  head->mark = 0;
  __atomic_fetch_add(&deleted, 1, __ATOMIC_RELAXED);
  std::free(head->start);
}

const char *counted(long before) { return made > before ? "counted" : "not counted"; }
} // namespace

void *operator new(std::size_t size) { return give(size, 16); }
void *operator new[](std::size_t size) { return give(size, 16); }
void *operator new(std::size_t size, std::align_val_t align) { return give(size, std::max<std::size_t>(16, std::size_t(align))); }
void operator delete(void *memory) noexcept { take(memory); }
void operator delete[](void *memory) noexcept { take(memory); }
void operator delete(void *memory, std::size_t) noexcept { take(memory); }
void operator delete[](void *memory, std::size_t) noexcept { take(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { take(memory); }

int main() {
  long at_start = made - deleted;
  {
    std::string text = "x";
    long before = made;
    text.append(1000, 'y');
    std::printf("a string grows in the library: %s\n", counted(before));

    before = made;
    std::ostringstream stream;
    stream << text << 5;
    std::printf("a stream: %s\n", counted(before));

    before = made;
    std::locale with_own_facet(std::locale::classic(), new std::numpunct<char>);
    std::printf("a locale: %s\n", counted(before));

    std::filesystem::path path = "/a/b";
    std::vector<std::filesystem::path> parts(path.begin(), path.end());
    std::printf("made in the library, deleted here: paths %zu\n", parts.size());

    std::string line(100, 'z');
    line.shrink_to_fit();
    std::istringstream input(std::string(5000, 'w') + "\n");
    std::getline(input, line);
    std::printf("made here, deleted in the library: %s\n", line.size() == 5000 ? "yes" : "no");

    before = made;
    std::thread thread([] { std::string in_thread(100, 't'); });
    thread.join();
    std::printf("a thread: %s\n", counted(before));

    std::vector<int> numbers(1000);
    for (int index = 0; index < 1000; index++)
      numbers[index] = index * 7919 % 1000;
    std::stable_sort(numbers.begin(), numbers.end());
    std::printf("sorted: %s\n", std::is_sorted(numbers.begin(), numbers.end()) ? "yes" : "no");
  }
  std::printf("made and deleted: %s\n", made - deleted == at_start ? "balanced" : "not balanced");
  std::printf("foreign memory: %ld\n", foreign);
}
