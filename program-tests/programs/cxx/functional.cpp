//# flags: -std=c++17
//# stdout: functions: 7 12 20 -3
//# stdout: bound: 9 6
//# stdout: empty: bad_function_call
//# stdout: visited: int 1, text two, real 3.5, nothing
//# stdout: any: 5 bad any_cast
//# stdout: optional: 4 bad optional access
//# stdout: recursion: 720
//# stdout: shared: 2 owners, then expired
//# stdout: tuple: (1, x, 2.5)
/* Type erasure and vocabulary types. */
#include <any>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

static int add(int a, int b) { return a + b; }
struct Scale {
  int factor;
  int times(int x) const { return x * factor; }
};

template <class... Cases> struct Overloaded : Cases... { using Cases::operator()...; };
template <class... Cases> Overloaded(Cases...) -> Overloaded<Cases...>;

int main() {
  Scale scale{4};
  int offset = 3;
  std::vector<std::function<int(int)>> functions = {[](int x) { return x + 2; }, [&offset](int x) { return x + 4 + offset; },
                                                    std::bind(&Scale::times, scale, std::placeholders::_1), std::negate<int>()};
  std::printf("functions:");
  int input[] = {5, 5, 5, 3};
  for (size_t i = 0; i < functions.size(); i++)
    std::printf(" %d", functions[i](input[i]));
  auto plus_four = std::bind(add, std::placeholders::_1, 4);
  std::printf("\nbound: %d %d\n", plus_four(5), std::mem_fn(&Scale::times)(Scale{2}, 3));
  try {
    std::function<void()>()();
  } catch (const std::bad_function_call &error) {
    std::printf("empty: %s\n", error.what());
  }
  using Value = std::variant<std::monostate, int, std::string, double>;
  std::printf("visited:");
  for (const Value &value : {Value(1), Value("two"), Value(3.5), Value()})
    std::visit(Overloaded{[](int x) { std::printf(" int %d,", x); }, [](const std::string &x) { std::printf(" text %s,", x.c_str()); },
                          [](double x) { std::printf(" real %g,", x); }, [](std::monostate) { std::printf(" nothing\n"); }},
               value);
  std::any any = 5;
  try {
    std::printf("any: %d", std::any_cast<int>(any));
    (void)std::any_cast<double>(any);
  } catch (const std::bad_any_cast &error) {
    std::printf(" %s\n", error.what());
  }
  std::optional<int> four = 4, none;
  try {
    std::printf("optional: %d", four.value());
    (void)none.value();
  } catch (const std::bad_optional_access &error) {
    std::printf(" %s\n", error.what());
  }
  std::function<int(int)> factorial = [&factorial](int n) { return n < 2 ? 1 : n * factorial(n - 1); };
  std::printf("recursion: %d\n", factorial(6));
  auto shared = std::make_shared<std::string>("x");
  std::weak_ptr<std::string> weak = shared;
  auto second = shared;
  std::printf("shared: %ld owners, then ", weak.use_count());
  shared.reset(), second.reset();
  std::puts(weak.expired() ? "expired" : "alive");
  std::apply([](int a, char b, double c) { std::printf("tuple: (%d, %c, %g)\n", a, b, c); }, std::tuple(1, 'x', 2.5));
}
