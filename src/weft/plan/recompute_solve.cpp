#include "weft/plan/recompute_solve.h"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

// What the blocks so far may do: the last of them does `level`, those before it are choice `before`.
struct PartialChoice {
  double flops = 0;
  int64_t again = 0;  // blocks that compute something again
  int64_t bytes = 0;
  size_t before = 0, level = 0;
  auto cost() const { return std::tuple(flops, again, bytes); }
};

// Least and most that blocks which are still to be chosen for may take.
struct BytesAhead {
  int64_t least = 0, most = 0;
};

BytesAhead bytes_of_one(const RecomputeGroup& g, const RecomputeLevels& allowed) {
  std::optional<BytesAhead> one;
  for (size_t level = 0; level < kBlockRecomputes; ++level) {
    if (!allowed[level]) continue;
    if (!one) one = {g.bytes[level], g.bytes[level]};
    one = {std::min(one->least, g.bytes[level]), std::max(one->most, g.bytes[level])};
  }
  return one.value_or(BytesAhead());
}

// Drops each for which another one takes no more and costs no more. Of bytes so few that all that is ahead fits anyway
// the number does not matter.
std::vector<PartialChoice> best_of(std::vector<PartialChoice> all, const BytesAhead& ahead, int64_t room) {
  std::erase_if(all, [&](const PartialChoice& c) { return c.bytes + ahead.least > room; });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.cost() < b.cost(); });
  std::vector<PartialChoice> best;
  for (const PartialChoice& c : all) {
    if (!best.empty() && c.bytes >= best.back().bytes) continue;
    best.push_back(c);
    if (c.bytes + ahead.most <= room) break;
  }
  return best;
}

}  // namespace

std::optional<std::vector<RecomputeCounts>> least_recompute(const std::vector<RecomputeGroup>& groups,
                                                            const RecomputeLevels& allowed, int64_t room,
                                                            size_t* kept) {
  BytesAhead ahead;
  std::vector<size_t> group_of;  // [block]
  for (size_t g = 0; g < groups.size(); ++g) {
    const BytesAhead one = bytes_of_one(groups[g], allowed);
    ahead.least += groups[g].count * one.least;
    ahead.most += groups[g].count * one.most;
    group_of.insert(group_of.end(), size_t(groups[g].count), g);
  }
  std::vector<std::vector<PartialChoice>> steps{{PartialChoice()}};
  for (const size_t g : group_of) {
    const BytesAhead one = bytes_of_one(groups[g], allowed);
    ahead.least -= one.least;
    ahead.most -= one.most;
    std::vector<PartialChoice> next;
    for (size_t i = 0; i < steps.back().size(); ++i)
      for (size_t level = 0; level < kBlockRecomputes; ++level) {
        const PartialChoice& c = steps.back()[i];
        if (allowed[level])
          next.push_back({.flops = c.flops + groups[g].flops[level],
                          .again = c.again + (level > 0),
                          .bytes = c.bytes + groups[g].bytes[level],
                          .before = i,
                          .level = level});
      }
    steps.push_back(best_of(std::move(next), ahead, room));
    if (steps.back().empty()) return {};
    if (kept != nullptr) *kept += steps.back().size();
  }
  if (group_of.empty() && room < 0) return {};
  std::vector<RecomputeCounts> counts(groups.size());
  size_t at = 0;  // the first costs least
  for (size_t block = group_of.size(); block-- > 0;) {
    const PartialChoice& c = steps[block + 1][at];
    ++counts[group_of[block]][c.level];
    at = c.before;
  }
  return counts;
}

}  // namespace weft
