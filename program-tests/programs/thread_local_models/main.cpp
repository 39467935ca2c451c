/* Looks at thread-local variables from a thread that was there before they were linked, from a later one, and from this. */
#include <condition_variable>
#include <cstdio>
#include <dlfcn.h>
#include <mutex>
#include <thread>

static void (*check)(const char *);
static void *(*where)(), *(*where_else)();
static bool linked;
static std::mutex mutex;
static std::condition_variable changed;

static void *look(const char *name) {
  check(name);
  check(name);
  std::printf("%s: %s\n", name, where() == where_else() ? "one address" : "two addresses");
  void *found = dlsym(RTLD_DEFAULT, "first");
  std::printf("%s: dlsym finds %s\n", name, !found ? "nothing" : found == where() ? "the same" : "something else");
  return where();
}

int main() {
  void *place = nullptr;
  std::thread before([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [] { return linked; });
    place = look("before");
  });
  check = reinterpret_cast<void (*)(const char *)>(dlsym(RTLD_DEFAULT, "check"));
  where = reinterpret_cast<void *(*)()>(dlsym(RTLD_DEFAULT, "where"));
  where_else = reinterpret_cast<void *(*)()>(dlsym(RTLD_DEFAULT, "where_else"));
  if (!check || !where || !where_else) return std::puts("not found"), 1;
  {
    std::lock_guard lock(mutex);
    linked = true;
  }
  changed.notify_all();
  before.join();
  std::thread after([&] { place = look("after"); });
  after.join();
  std::puts(look("main") == place ? "shared" : "its own");
}
