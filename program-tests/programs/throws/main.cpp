// Measures how long a throw takes that passes FRAMES_PASSED frames of as many objects and is caught in main: the first
// one, then on one thread, then on two at once. Prints nanoseconds as JSON.
//
// FRAMES is how many objects are linked; the table of all of them is in `table.inc`.
#include "frames.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

enum { FRAMES_PASSED = 5 };

#define FRAME(number) extern "C" Step frame_##number;
#include "table.inc"
#undef FRAME
#define FRAME(number) frame_##number,
static Step *const frames[] = {
#include "table.inc"
};
static const unsigned count = sizeof frames / sizeof *frames;

static int throwing(Call *) { throw 1; }

static double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Throws `times` through frames that are spread over all objects; returns how many were caught.
static int throw_and_catch(int times, unsigned seed) {
  int caught = 0;
  for (int i = 0; i < times; i++) {
    Step *steps[FRAMES_PASSED + 1];
    for (int step = 0; step < FRAMES_PASSED; step++) {
      seed = seed * 1664525u + 1013904223u;
      steps[step] = frames[(seed >> 8) % count];
    }
    steps[FRAMES_PASSED] = throwing;
    Call call = {steps, 1};
    try {
      steps[0](&call);
    } catch (int value) {
      caught += value;
    }
  }
  return caught;
}

int main(int argc, char **argv) {
  const int times = argc > 1 ? std::atoi(argv[1]) : 20000;
  double started = now_ns();
  int caught = throw_and_catch(1, 1);
  double first = now_ns() - started;
  started = now_ns();
  caught += throw_and_catch(times, 2);
  double one = (now_ns() - started) / times;
  int caught_by[2];
  started = now_ns();
  std::thread other([&] { caught_by[1] = throw_and_catch(times, 3); });
  caught_by[0] = throw_and_catch(times, 4);
  other.join();
  double two = (now_ns() - started) / times;
  caught += caught_by[0] + caught_by[1];
  std::printf("{\"objects\": %u, \"first_ns\": %.0f, \"one_thread_ns\": %.0f, \"two_threads_ns\": %.0f}\n", count, first, one, two);
  return caught == 3 * times + 1 ? 0 : 1;
}
