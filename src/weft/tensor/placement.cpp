#include "weft/tensor/placement.h"

namespace weft {

std::string_view name_of(Spmd s) {
  constexpr std::string_view kNames[] = {"None", "Replicate", "Invariant", "Shard0", "Shard1", "Partial"};
  return kNames[size_t(s)];
}

std::string_view name_of(Axis axis) {
  constexpr std::string_view kNames[] = {"dp", "cp", "tp", "edp", "ep", "pp"};
  return kNames[size_t(axis)];
}

std::string Placement::to_string() const {
  std::string text;
  for (int a = 0; a < kAxes; ++a) {
    if (on_[size_t(a)] == Spmd::None) continue;
    if (!text.empty()) text += ' ';
    text += std::string(name_of(Axis(a))) + ':' + std::string(name_of(on_[size_t(a)]));
  }
  return text.empty() ? "host" : text;
}

}  // namespace weft
