#include "weft/schedule/loops.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kOften = 8;         // times that make a loop
constexpr size_t kLongest = 1 << 14;  // actions of a loop: the longest are of 2 stages x chunks

class Finder {
 public:
  explicit Finder(const Schedule& schedule) : s_(schedule) {}

  // The loops of actions [first, end): the largest in whose midst the middle lies, and those before and behind it.
  void find(size_t first, size_t end) {
    if (first == end) return;
    const size_t middle = first + (end - first) / 2, longest = std::min(kLongest, (end - first) / size_t(kOften));
    Loop best{middle, 1, 1, 0};
    for (size_t length = 1; length <= longest && 2 * actions_of(best) < end - first; ++length) {
      const Action &a = s_[middle], &next = s_[middle + length];
      if (next.what != a.what || next.chunk != a.chunk || next.micro_batch <= a.micro_batch) continue;
      const Loop loop = loop_around(middle, length, first, end);
      if (loop.times >= kOften && actions_of(loop) > actions_of(best)) best = loop;
    }
    find(first, best.first);
    loops.push_back(best);
    find(best.first + actions_of(best), end);
  }
  std::vector<Loop> loops;

 private:
  static size_t actions_of(const Loop& loop) { return loop.length * size_t(loop.times); }
  Loop loop_around(size_t middle, size_t length, size_t first, size_t end) const {
    const int64_t shift = s_[middle + length].micro_batch - s_[middle].micro_batch;
    const auto repeats = [&](size_t i) {
      return s_[i + length] == Action{s_[i].what, s_[i].micro_batch + shift, s_[i].chunk};
    };
    size_t begin = middle, until = middle;
    while (begin > first && repeats(begin - 1)) --begin;
    while (until + length < end && repeats(until)) ++until;
    return {begin, length, int64_t((until + length - begin) / length), shift};
  }
  const Schedule& s_;
};

}  // namespace

std::vector<Loop> loops_of(const Schedule& schedule) {
  Finder finder(schedule);
  finder.find(0, schedule.size());
  return std::move(finder.loops);
}

}  // namespace weft
