// Clocks, passed as parameters.
#pragma once
#include <chrono>

namespace weft {

// Seconds of a steady clock.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Seconds since 1970.
inline double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Adds the seconds that it takes.
template <class F>
void add_time(double& seconds, const F& what) {
  const double began = now_s();
  what();
  seconds += now_s() - began;
}

}  // namespace weft
