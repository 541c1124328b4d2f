#include "weft/schedule/loops.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kOften = 8;  // times that make a loop
// Actions of a loop: looked for everywhere, and now and then (the longest are of 2 stages x chunks).
constexpr size_t kShort = 64, kLongest = 1 << 14;

// The loop of so many actions at `first`.
Loop loop_at(const Schedule& s, size_t first, size_t length) {
  const int64_t shift = s[first + length].micro_batch - s[first].micro_batch;
  size_t end = first;
  const auto repeats = [&](const Action& a, const Action& next) {
    return next == Action{a.what, a.micro_batch + shift, a.chunk};
  };
  while (end + length < s.size() && repeats(s[end], s[end + length])) ++end;
  return {first, length, 1 + int64_t((end - first) / length), shift};
}

Loop longest_loop_at(const Schedule& s, size_t first) {
  const size_t longest = std::min(first % kShort == 0 ? kLongest : kShort, (s.size() - first) / size_t(kOften));
  for (size_t length = 1; length <= longest; ++length) {
    const Action &a = s[first], &next = s[first + length];
    if (next.what != a.what || next.chunk != a.chunk || next.micro_batch <= a.micro_batch) continue;
    const Loop loop = loop_at(s, first, length);
    if (loop.times >= kOften) return loop;
  }
  return {first, 1, 1, 0};
}

}  // namespace

std::vector<Loop> loops_of(const Schedule& schedule) {
  std::vector<Loop> all;
  for (size_t first = 0; first < schedule.size();) {
    const Loop loop = longest_loop_at(schedule, first);
    all.push_back(loop);
    first += loop.length * size_t(loop.times);
  }
  return all;
}

}  // namespace weft
