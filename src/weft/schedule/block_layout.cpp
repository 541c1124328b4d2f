#include "weft/schedule/block_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-12;  // costs that differ by less than this share are the same

// All cuts of the first n blocks into k virtual stages, by dynamic programming over k.
class Cutter {
 public:
  Cutter(const BlockCosts& costs, int num_stages, int64_t min_blocks)
      : costs_(costs), stages_(num_stages), min_(min_blocks), blocks_(int64_t(costs.blocks.size())) {
    sums_.push_back(0);
    for (const double cost : costs.blocks) sums_.push_back(sums_.back() + cost);
  }

  struct Cut {
    double value;
    BlockLayout layout;
  };
  // The one with the least `join(join(join(0, cost of stage 0), cost of stage 1), ...)`; of those with fewer blocks in
  // front. `join` rises with both.
  template <class Join>
  Cut least(Join join) const {
    const size_t columns = size_t(blocks_) + 1;
    std::vector<double> values(columns, kInfinity);
    values[0] = 0;
    std::vector<std::vector<int64_t>> begins;  // of the last stage: [stages - 1][blocks]
    for (int k = 0; k < stages_; ++k) {
      std::vector<double> next(columns, kInfinity);
      begins.emplace_back(columns, -1);
      for (int64_t end = 0; end <= blocks_; ++end) {
        for (int64_t begin = 0; begin + min_ <= end; ++begin) {
          const double value = join(values[size_t(begin)], cost(k, begin, end));
          if (!(value < next[size_t(end)] * (1 - kRounding))) continue;
          next[size_t(end)] = value;
          begins.back()[size_t(end)] = begin;
        }
      }
      values = std::move(next);
    }
    return {values.back(), trace(begins)};
  }

 private:
  double cost(int k, int64_t begin, int64_t end) const {
    return sums_[size_t(end)] - sums_[size_t(begin)] + (k == 0 ? costs_.embedding : 0) +
           (k == stages_ - 1 ? costs_.head : 0);
  }

  BlockLayout trace(const std::vector<std::vector<int64_t>>& begins) const {
    BlockLayout layout(static_cast<size_t>(stages_));
    int64_t end = blocks_;
    for (size_t k = layout.size(); k-- > 0;) {
      const int64_t begin = begins[k][size_t(end)];
      WEFT_CHECK(begin >= 0, "no cut of {} blocks into {} virtual stages", blocks_, stages_);
      layout[k] = end - begin;
      end = begin;
    }
    return layout;
  }

  const BlockCosts& costs_;
  const int stages_;
  const int64_t min_, blocks_;
  std::vector<double> sums_;  // of the first i blocks
};

}  // namespace

BlockLayout balanced_layout(const BlockCosts& costs, int num_virtual_stages, int64_t min_blocks) {
  WEFT_CHECK(num_virtual_stages >= 1 && min_blocks >= 0, "{} virtual stages of at least {} blocks", num_virtual_stages,
             min_blocks);
  const int64_t most = int64_t(costs.blocks.size()) / num_virtual_stages;
  const Cutter cutter(costs, num_virtual_stages, std::min(min_blocks, most));
  const double dearest = cutter.least([](double so_far, double cost) { return std::max(so_far, cost); }).value;
  const double limit = dearest * (1 + 2 * kRounding);
  const auto squares = [limit](double so_far, double cost) { return cost > limit ? kInfinity : so_far + cost * cost; };
  return cutter.least(squares).layout;
}

std::string layout_fault(const BlockLayout& layout, int num_virtual_stages, int64_t num_blocks) {
  if (layout.size() != size_t(num_virtual_stages))
    return fmt::format("{} counts for {} virtual stages", layout.size(), num_virtual_stages);
  for (size_t k = 0; k < layout.size(); ++k) {
    if (layout[k] < 0) return fmt::format("{} is no number of blocks", layout[k]);
    if (layout[k] == 0 && k > 0 && k + 1 < layout.size())
      return fmt::format(
          "virtual stage {} would have nothing to do; only the first and the last, which have the "
          "embedding and the head, may be without blocks",
          k);
  }
  const int64_t sum = std::accumulate(layout.begin(), layout.end(), int64_t{0});
  return sum == num_blocks ? "" : fmt::format("the counts add up to {}, and the model has {} blocks", sum, num_blocks);
}

std::optional<BlockLayout> nearest_layout(const BlockLayout& layout, int64_t num_blocks) {
  const auto n = int64_t(layout.size());
  if (n == 0 || n - 2 > num_blocks) return {};
  const auto at_most = [&](int64_t level) {
    BlockLayout all;
    for (int64_t k = 0; k < n; ++k)
      all.push_back(std::max<int64_t>(std::min(layout[size_t(k)], level), k > 0 && k + 1 < n ? 1 : 0));
    return all;
  };
  const auto sum = [](const BlockLayout& all) { return std::accumulate(all.begin(), all.end(), int64_t{0}); };
  int64_t level = 0;
  while (level < num_blocks && sum(at_most(level + 1)) <= num_blocks) ++level;
  BlockLayout nearest = at_most(level);
  const BlockLayout more = at_most(level + 1);
  int64_t left = num_blocks - sum(nearest);
  for (size_t k = 0; k < nearest.size() && left > 0; ++k) {
    if (more[k] == nearest[k]) continue;
    ++nearest[k];
    --left;
  }
  for (int64_t k = 0; k < n; ++k) nearest[size_t(k)] += left / n + (k < left % n ? 1 : 0);
  return nearest;
}

std::string to_string(const BlockLayout& layout) { return fmt::format("[{}]", fmt::join(layout, ", ")); }

int64_t first_block(const BlockLayout& layout, int virtual_stage) {
  WEFT_CHECK(virtual_stage >= 0 && size_t(virtual_stage) < layout.size(), "virtual stage {} of {}", virtual_stage,
             layout.size());
  return std::accumulate(layout.begin(), layout.begin() + virtual_stage, int64_t{0});
}

}  // namespace weft
