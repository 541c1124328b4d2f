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

}  // namespace weft
