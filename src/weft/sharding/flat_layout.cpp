#include "weft/sharding/flat_layout.h"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Run overlap(Run a, Run b) {
  const int64_t first = std::max(a.first, b.first), end = std::max(first, std::min(a.end(), b.end()));
  return {first, end - first};
}

FlatLayout flat_layout(std::vector<const Param*> weights, int64_t num_ranks) {
  std::stable_sort(weights.begin(), weights.end(), [](const Param* a, const Param* b) {
    const auto key = [](const Param* p) {
      return std::tuple(!p->spec().decays(), !p->spec().linear, p->spec().place.tp());
    };
    return key(a) < key(b);
  });
  FlatLayout l;
  for (const Param* p : weights) {
    l.weights.push_back({p, l.size});
    for (const Piece& piece : p->pieces()) {
      const FlatLayout::Range range{
          .run = {l.size + piece.local_row * piece.cols.count, piece.rows.count * piece.cols.count},
          .held = piece.held,
          .decays = p->spec().decays(),
          .linear = p->spec().linear};
      FlatLayout::Range* last = l.ranges.empty() ? nullptr : &l.ranges.back();
      if (last && last->held == range.held && last->like(range))
        last->run.count = range.run.end() - last->run.first;
      else
        l.ranges.push_back(range);
    }
    l.size = padded(l.size + p->most_elements(), kSumLeaf);
  }
  l.size = padded(l.size, kSumLeaf * num_ranks);
  return l;
}

FlatLayout alone(const FlatLayout& layout, const Param& weight) {
  FlatLayout l = layout;
  std::erase_if(l.weights, [&](const FlatLayout::Weight& w) { return w.param != &weight; });
  WEFT_CHECK(l.weights.size() == 1, "{} is not of this layout", weight.spec().name);
  return l;
}

std::vector<FlatLayout::Range> FlatLayout::kinds() const {
  std::vector<Range> all;
  for (const Range& r : ranges)
    if (all.empty() || !all.back().like(r)) all.push_back(r);
  for (size_t i = 0; i < all.size(); ++i)
    all[i].run.count = (i + 1 < all.size() ? all[i + 1].run.first : size) - all[i].run.first;
  return all;
}

std::vector<Run> FlatLayout::gaps() const {
  std::vector<Run> all;
  int64_t at = 0;
  for (const Weight& w : weights) {
    if (w.first > at) all.push_back({at, w.first - at});
    at = w.run().end();
  }
  if (size > at) all.push_back({at, size - at});
  return all;
}

std::vector<Run> FlatLayout::state_runs(const NumStates& num_states) const {
  std::vector<Run> runs;
  for (const Range& kind : kinds()) {
    int most = 0;
    for (const Weight& w : weights)
      if (w.first >= kind.run.first && w.first < kind.run.end()) most = std::max(most, num_states(w.param->spec()));
    while (int(runs.size()) < most) runs.push_back({kind.run.first, 0});
    for (int k = 0; k < most; ++k) runs[size_t(k)].count = kind.run.end() - runs[size_t(k)].first;
  }
  return runs;
}

Run kept(const FlatLayout& layout, const Param& p, int64_t first, size_t piece, const CutRanks& at, RankOf shard) {
  const Piece there = pieces_of(p.spec(), at)[piece];
  const int64_t begin = first + there.local_row * there.cols.count;
  const Run here = overlap({begin, there.rows.count * there.cols.count}, layout.shard(shard));
  return {here.first - begin, here.count};
}

}  // namespace weft
