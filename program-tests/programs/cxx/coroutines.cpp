//# flags: -std=c++20
//# stdout: fibonacci: 0 1 1 2 3 5 8 13 21 34
//# stdout: tree: 1 2 3 4 5 6 7
//# stdout: awaited: 42 after 3 steps
//# stdout: exception out of a coroutine: stuck at 2
//# stdout: destroyed half way: cleaned
//# stdout: symmetric transfer: 1000 times
/* Coroutines: generators, tasks that await each other, exceptions, destruction half way, symmetric transfer. */
#include <coroutine>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

template <class T> struct Generator {
  struct promise_type {
    T value{};
    std::exception_ptr error;
    Generator get_return_object() { return Generator{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(T next) {
      value = next;
      return {};
    }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  explicit Generator(std::coroutine_handle<promise_type> handle) : handle(handle) {}
  Generator(Generator &&other) : handle(std::exchange(other.handle, {})) {}
  ~Generator() {
    if (handle)
      handle.destroy();
  }
  bool next() {
    handle.resume();
    if (handle.promise().error)
      std::rethrow_exception(handle.promise().error);
    return !handle.done();
  }
  T value() const { return handle.promise().value; }
  std::coroutine_handle<promise_type> handle;
};

static Generator<int> fibonacci() {
  for (int a = 0, b = 1;; b = std::exchange(a, b) + b)
    co_yield a;
}

static Generator<int> in_order(int low, int high) {
  if (low > high)
    co_return;
  int middle = (low + high) / 2;
  for (auto left = in_order(low, middle - 1); left.next();)
    co_yield left.value();
  co_yield middle;
  for (auto right = in_order(middle + 1, high); right.next();)
    co_yield right.value();
}

struct Task {
  struct promise_type {
    int value = 0;
    std::coroutine_handle<> waiter = std::noop_coroutine();
    Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Awaiter {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> done) noexcept { return done.promise().waiter; }
        void await_resume() noexcept {}
      };
      return Awaiter{};
    }
    void return_value(int result) { value = result; }
    void unhandled_exception() { std::terminate(); }
  };
  explicit Task(std::coroutine_handle<promise_type> handle) : handle(handle) {}
  Task(Task &&other) : handle(std::exchange(other.handle, {})) {}
  ~Task() {
    if (handle)
      handle.destroy();
  }
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle.promise().waiter = caller;
    return handle;
  }
  int await_resume() { return handle.promise().value; }
  std::coroutine_handle<promise_type> handle;
};

static int steps;
static Task step(int x) {
  steps++;
  co_return x;
}
static Task sum() { co_return co_await step(10) + co_await step(12) + co_await step(20); }

static long transfers;
static Task one() { co_return 1; }
static Task loop(long count) {
  for (long i = 0; i < count; i++)
    transfers += co_await one();
  co_return 0;
}

static Generator<int> failing() {
  co_yield 1;
  co_yield 2;
  throw std::runtime_error("stuck at 2");
}

struct Cleanup {
  ~Cleanup() { std::puts("cleaned"); }
};
static Generator<int> holding() {
  Cleanup cleanup;
  std::string text(100, 'x');
  co_yield static_cast<int>(text.size());
  std::puts("never resumed");
}

int main() {
  std::printf("fibonacci:");
  auto numbers = fibonacci();
  for (int i = 0; i < 10 && numbers.next(); i++)
    std::printf(" %d", numbers.value());
  std::printf("\ntree:");
  for (auto tree = in_order(1, 7); tree.next();)
    std::printf(" %d", tree.value());
  auto task = sum();
  task.handle.resume();
  std::printf("\nawaited: %d after %d steps\n", task.handle.promise().value, steps);
  auto broken = failing();
  try {
    while (broken.next()) {
    }
  } catch (const std::runtime_error &error) {
    std::printf("exception out of a coroutine: %s\n", error.what());
  }
  std::printf("destroyed half way: ");
  { auto held = holding(); held.next(); }
  auto looping = loop(1000);
  looping.handle.resume();
  std::printf("symmetric transfer: %ld times\n", transfers);
}
