//# stdout: static made
//# stdout: exiting from five frames down
//# stdout: atexit handler sees the static: alive
//# stdout: static destroyed
//# exit: 12
/* exit() leaves automatic objects alone and destroys static ones. */
#include <cstdio>
#include <cstdlib>

static struct Static {
  Static() { std::puts("static made"); }
  ~Static() { alive = false, std::puts("static destroyed"); }
  bool alive = true;
} object;

struct Automatic {
  ~Automatic() { std::puts("automatic destroyed"); }
};

static void deeper(int frames) {
  Automatic automatic;
  if (frames == 0) {
    std::puts("exiting from five frames down");
    std::exit(12);
  }
  deeper(frames - 1);
}

int main() {
  std::atexit([] { std::printf("atexit handler sees the static: %s\n", object.alive ? "alive" : "destroyed"); });
  deeper(5);
}
