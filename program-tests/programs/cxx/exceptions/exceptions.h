#include <exception>
#include <functional>
#include <string>

struct Base : std::exception {
  explicit Base(std::string text) : text(std::move(text)) {}
  const char *what() const noexcept override { return text.c_str(); }
  std::string text;
};
struct Derived : Base {
  Derived(int number, std::string text) : Base(std::move(text)), number(number) {}
  int number;
};
struct Counted {
  Counted() { alive++; }
  Counted(const Counted &) = delete;
  ~Counted() { alive--, destroyed++; }
  static int alive, destroyed;
};
[[noreturn]] void throw_int(int value);
[[noreturn]] void throw_derived(int value);
[[noreturn]] void throw_pointer();
[[noreturn]] void rethrow_as(const char *text);
void through_frames(int depth, const std::function<void()> &call);
int catch_there(const std::function<void()> &call);
