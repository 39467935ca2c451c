// One frame that exceptions pass through. The benchmark links thousands of copies of its object, each with the zeroes in
// the name replaced by a number of its own, so that no compiler has to run ten thousand times.
#include "frames.h"

// A landing pad that the optimizer must keep.
struct Object {
  ~Object() { __asm__ volatile("" : : : "memory"); }
};

extern "C" int frame_00000(Call *call) {
  Object object;
  return call->steps[call->depth++](call) + 1;
}
