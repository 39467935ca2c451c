#include "exceptions.h"

void through_frames(int depth, const std::function<void()> &call) {
  if (depth == 0)
    return call();
  Counted counted;
  through_frames(depth - 1, call);
}

int catch_there(const std::function<void()> &call) {
  try {
    call();
  } catch (const Derived &error) {
    return error.number;
  } catch (const Base &) {
    return -1;
  }
  return 0;
}
