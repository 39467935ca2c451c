//# stdout: async: 5000 4950
//# stdout: deferred: ran on get
//# stdout: exception through a future: late tablet
//# stdout: promise: 17
//# stdout: packaged: 81
//# stdout: call_once: 1 of 8
//# stdout: call_once with a throw: 2 attempts
//# stdout: queue: 4950
//# stdout: shared mutex: consistent
//# stdout: stop token: stopped
//# stdout: latch, barrier, semaphore: 4 3 2
//# stdout: timed out: yes
//# flags: -std=c++20 -D_GLIBCXX_USE_POSIX_SEMAPHORE
/* The standard library's threads: futures, call_once, condition variables, locks, stop tokens.
   libstdc++ 12's own semaphore may sleep for ever, natively too: it sleeps on a count that it has read before it tried, and of a count
   that was taken and given back meanwhile nobody tells it. First calls make that time long enough to be met. So: POSIX semaphores. */
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <latch>
#include <mutex>
#include <numeric>
#include <queue>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static long sum(int from, int to) {
  std::vector<int> values(static_cast<size_t>(to - from));
  std::iota(values.begin(), values.end(), from);
  return std::accumulate(values.begin(), values.end(), 0L);
}

static void futures() {
  auto one = std::async(std::launch::async, sum, 50, 51), hundred = std::async(std::launch::async, sum, 0, 100);
  std::printf("async: %ld %ld\n", one.get() * 100, hundred.get());
  bool ran = false;
  auto deferred = std::async(std::launch::deferred, [&ran] { ran = true; });
  bool before = ran;
  deferred.get();
  std::printf("deferred: %s\n", !before && ran ? "ran on get" : "ran early");
  auto failing = std::async(std::launch::async, []() -> int { throw std::runtime_error("late tablet"); });
  try {
    failing.get();
  } catch (const std::runtime_error &error) {
    std::printf("exception through a future: %s\n", error.what());
  }
  std::promise<int> promise;
  std::thread setter([&promise] { promise.set_value(17); });
  std::printf("promise: %d\n", promise.get_future().get());
  setter.join();
  std::packaged_task<int(int)> task([](int x) { return x * x; });
  auto squared = task.get_future();
  std::thread(std::move(task), 9).join();
  std::printf("packaged: %d\n", squared.get());
}

static void once() {
  std::once_flag flag, throwing;
  std::atomic<int> calls = 0, attempts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++)
    threads.emplace_back([&] { std::call_once(flag, [&calls] { calls++; }); });
  for (auto &thread : threads)
    thread.join();
  std::printf("call_once: %d of 8\n", calls.load());
  for (int i = 0; i < 3; i++)
    try {
      std::call_once(throwing, [&attempts] {
        if (++attempts == 1)
          throw 1;
      });
    } catch (int) {
    }
  std::printf("call_once with a throw: %d attempts\n", attempts.load());
}

static void locks() {
  std::mutex mutex;
  std::condition_variable changed;
  std::queue<int> queue;
  long total = 0;
  std::thread consumer([&] {
    for (int taken = 0; taken < 100; taken++) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&queue] { return !queue.empty(); });
      total += queue.front();
      queue.pop();
    }
  });
  for (int i = 0; i < 100; i++) {
    std::lock_guard lock(mutex);
    queue.push(i);
    changed.notify_one();
  }
  consumer.join();
  std::printf("queue: %ld\n", total);
  std::shared_mutex shared;
  std::atomic<bool> torn = false;
  int pair[2] = {0, 0};
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 4; writer++)
    threads.emplace_back([&, writer] {
      for (int i = 0; i < 2000; i++)
        if (writer < 2) {
          std::unique_lock lock(shared);
          pair[0]++, pair[1]--;
        } else {
          std::shared_lock lock(shared);
          if (pair[0] + pair[1])
            torn = true;
        }
    });
  for (auto &thread : threads)
    thread.join();
  std::printf("shared mutex: %s\n", torn ? "torn" : "consistent");
}

static void newer() {
  std::atomic<bool> stopped = false;
  {
    std::jthread thread([&stopped](std::stop_token token) {
      while (!token.stop_requested())
        std::this_thread::yield();
      stopped = true;
    });
  }
  std::printf("stop token: %s\n", stopped ? "stopped" : "still running");
  std::latch latch(4);
  std::counting_semaphore<4> semaphore(2);
  std::atomic<int> arrived = 0, phases = 0, most = 0, inside = 0;
  std::barrier barrier(4, [&phases]() noexcept { phases++; });
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&] {
      arrived++;
      latch.arrive_and_wait();
      for (int phase = 0; phase < 3; phase++)
        barrier.arrive_and_wait();
      semaphore.acquire();
      int now = ++inside, seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      inside--;
      semaphore.release();
    });
  latch.wait();
  threads.clear();
  std::printf("latch, barrier, semaphore: %d %d %d\n", arrived.load(), phases.load(), most.load() <= 2 ? 2 : most.load());
  std::timed_mutex held;
  held.lock();
  bool got = false;
  std::thread([&] { got = held.try_lock_for(std::chrono::milliseconds(20)); }).join();
  std::printf("timed out: %s\n", got ? "no" : "yes");
}

int main() {
  futures();
  once();
  locks();
  newer();
}
