#include "weft/sharding/flat_layout.h"

#include <algorithm>
#include <numeric>
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
    for (const HeldPart& part : p->parts()) {
      if (p->spec().in_codes()) break;  // nothing updates or sums it
      const FlatLayout::Range range{
          .run = {l.size + part.local_row * part.cols.count, part.rows.count * part.cols.count},
          .held = part.held,
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

std::vector<FlatLayout::StateRun> FlatLayout::state_runs(const StateFormats& formats) const {
  std::vector<StateRun> runs;
  std::vector<std::optional<size_t>> open;  // [state] the run of numbers that goes on
  const auto end_at = [&](size_t state, int64_t end) {
    if (!open[state]) return;
    Run& run = runs[*open[state]].run;
    run.count = end - run.first;
    open[state].reset();
  };
  for (const Weight& w : weights) {
    for (size_t i = 0; i < w.param->parts().size(); ++i) {
      const HeldPart& part = w.param->parts()[i];
      const Run here{w.first + part.local_row * part.cols.count, part.rows.count * part.cols.count};
      if (here.count == 0) continue;
      const std::vector<StateFormat> states = formats(w.param->spec(), elements_of_part(w.param->spec(), part));
      open.resize(std::max(open.size(), states.size()));
      for (size_t k = 0; k < open.size(); ++k) {
        const bool has_numbers = k < states.size() && !states[k].levels;
        if (!has_numbers) end_at(k, here.first);
        if (has_numbers && !open[k]) {
          open[k] = runs.size();
          runs.push_back({.index = int(k), .run = {here.first, 0}});
        }
        if (k < states.size() && states[k].levels)
          runs.push_back({.index = int(k), .run = here, .param = w.param, .part = i, .levels = states[k].levels});
      }
    }
  }
  for (size_t k = 0; k < open.size(); ++k) end_at(k, size);
  return runs;
}

std::vector<int> FlatParams::owners_of(int flat) const {
  std::vector<int> owners;
  for (const Param* p : all[size_t(flat)].params)
    if (p->tied_to_ != nullptr) owners.push_back(p->tied_to_->flat_);
  return owners;
}

namespace {

// The same ranges with one weight alone.
FlatLayout alone(const FlatLayout& layout, const Param& weight) {
  FlatLayout l = layout;
  std::erase_if(l.weights, [&](const FlatLayout::Weight& w) { return w.param != &weight; });
  WEFT_CHECK(l.weights.size() == 1, "{} is not of this layout", weight.spec().name);
  return l;
}

}  // namespace

void FlatParams::add_mirrors(int flat) {
  for (size_t i = 0; i < all[size_t(flat)].params.size(); ++i) {
    Param* p = all[size_t(flat)].params[i];
    if (p->tied_to_ == nullptr) continue;
    const FlatParam& owner = all[size_t(p->tied_to_->flat_)];
    p->offset_ = p->tied_to_->offset_;
    p->flat_ = int(all.size());
    all.push_back(FlatParam{.name = owner.name + " in " + all[size_t(flat)].name,
                            .params = {p},
                            .mirrors = p->tied_to_->flat_,
                            .layout = alone(owner.layout, *p->tied_to_)});
  }
}

std::vector<int64_t> FlatParams::buffer_sizes(bool ties_stay) const {
  const auto largest_first = [&](const std::vector<int>& flats) {
    std::vector<int64_t> sizes;
    for (const int flat : flats) sizes.push_back(all[size_t(flat)].size());
    std::sort(sizes.rbegin(), sizes.rend());
    return sizes;
  };
  std::vector<int64_t> buffers(1);
  bool has_ties = false;
  const auto in_use = [&](std::vector<int> flats) {
    for (size_t i = 0, given = flats.size(); i < given; ++i)
      for (const int owner : owners_of(flats[i])) {
        if (std::find(flats.begin(), flats.end(), owner) != flats.end()) continue;
        flats.push_back(owner);
        has_ties = true;
      }
    const std::vector<int64_t> sizes = largest_first(flats);
    buffers.resize(std::max(buffers.size(), sizes.size()));
    for (size_t i = 0; i < sizes.size(); ++i) buffers[i] = std::max(buffers[i], sizes[i]);
  };
  std::vector<int> each(all.size());
  std::iota(each.begin(), each.end(), 0);
  for (const int flat : each) in_use({flat});
  for (const std::vector<int>& flats : together) in_use(flats);
  if (ties_stay && has_ties) buffers[1] = largest_first(each)[1];
  while (buffers.size() > 1 && buffers.back() == 0) buffers.pop_back();
  if (const int64_t next = largest_neighbour(); next > 0) buffers.push_back(next);
  return buffers;
}

int64_t FlatParams::largest_neighbour() const {
  int64_t largest = 0;
  for (size_t i = 1; i < all.size(); ++i) largest = std::max(largest, std::min(all[i - 1].size(), all[i].size()));
  return largest;
}

}  // namespace weft
