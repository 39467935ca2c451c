#include <cstdio>

struct Loud {
  explicit Loud(const char *name) : name(name) { std::printf("+ %s\n", name); }
  ~Loud() { std::printf("- %s\n", name); }
  const char *name;
};
