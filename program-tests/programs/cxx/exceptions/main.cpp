//# stdout: int 7
//# stdout: as base: derived from far away (42)
//# stdout: a copy, not the original: yes
//# stdout: standard: vector::_M_range_check: __n (which is 5) >= this->size() (which is 3)
//# stdout: anything: caught
//# stdout: rethrown 3 times: inner
//# stdout: cleaned up: 30 objects
//# stdout: pointer: thrown pointer
//# stdout: member initialiser: from a constructor
//# stdout: out of a destructor's frame: kept
//# stdout: uncaught count: 1 then 0
//# stdout: thrown here, caught there: 99
//# stdout: many: 20000
//# stdout: bad alloc: std::bad_alloc
/* Exceptions thrown in one file and caught in another, through frames of a third. */
#include "exceptions.h"
#include <cstdio>
#include <new>
#include <vector>

int Counted::alive = 0;
int Counted::destroyed = 0;

struct Member {
  Member() try : value((throw Derived(1, "from a constructor"), 0)) {
  } catch (const Base &error) {
    std::printf("member initialiser: %s\n", error.what());
    throw;
  }
  int value;
};

struct Watcher {
  ~Watcher() {
    int inside = std::uncaught_exceptions();
    try {
      throw 1;
    } catch (int) {
    }
    std::printf("uncaught count: %d then ", inside);
  }
};

int main() {
  try { throw_int(7); } catch (int value) { std::printf("int %d\n", value); }
  try { through_frames(0, [] { throw_derived(42); }); } catch (const Base &error) {
    std::printf("as base: %s (%d)\n", error.what(), dynamic_cast<const Derived &>(error).number);
  }
  Derived original(5, "original");
  try { throw original; } catch (Base &error) { std::printf("a copy, not the original: %s\n", &error != &original ? "yes" : "no"); }
  try { std::vector<int>(3).at(5); } catch (const std::exception &error) { std::printf("standard: %s\n", error.what()); }
  try { throw_int(1); } catch (...) { std::puts("anything: caught"); }
  int times = 0;
  try {
    try {
      try { throw_derived(1); } catch (...) { times++; throw; }
    } catch (Base &error) { times++; rethrow_as("inner"); }
  } catch (const Derived &error) { std::printf("rethrown %d times: %s\n", ++times, error.what()); }
  try { through_frames(30, [] { throw_int(0); }); } catch (int) { std::printf("cleaned up: %d objects\n", Counted::alive ? -1 : Counted::destroyed); }
  try { throw_pointer(); } catch (const char *text) { std::printf("pointer: %s\n", text); }
  try { Member member; } catch (const Derived &) { std::puts("out of a destructor's frame: kept"); }
  try { Watcher watcher; throw_int(3); } catch (int) { std::printf("%d\n", std::uncaught_exceptions()); }
  std::printf("thrown here, caught there: %d\n", catch_there([] { throw Derived(99, "here"); }));
  int many = 0;
  for (int i = 0; i < 20000; i++)
    try { through_frames(3, [] { throw_int(1); }); } catch (int value) { many += value; }
  std::printf("many: %d\n", many);
  volatile long negative = -1;
  int *volatile array = nullptr;
  try { array = new int[negative]; delete[] array; } catch (const std::bad_alloc &error) { std::printf("bad alloc: %s\n", error.what()); }
}
