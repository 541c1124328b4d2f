// The cut of a model's blocks over stages of unequal devices: found with a line for each stage, then held to forecasts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "weft/base/error.h"
#include "weft/forecast/unequal_forecast.h"

namespace weft {
namespace {

constexpr double kGains = 0.001;  // of a step: less is no gain
constexpr int kMostCuts = 8;      // that are made until one has room
constexpr size_t kMostTargets = 3;

// What a stage takes, by its blocks: nearly a line.
struct StageLine {
  int64_t blocks = 0;  // where it was measured
  double seconds = 0, each_s = 0;
  double bytes = 0, each_bytes = 0, room = 0;
  double seconds_with(int64_t n) const { return seconds + each_s * double(n - blocks); }
  int64_t most() const {  // blocks that there is room for
    if (each_bytes <= 0) return bytes <= room ? INT64_MAX : blocks - 1;
    return blocks + int64_t(std::floor((room - bytes) / each_bytes));
  }
};

int first_part(const Pipeline& p, int stage) { return virtual_stage(p, {stage, 0}); }

// One block goes from each even stage to the next one, or the other way where it has one alone; and one from the last
// of an odd number of stages. So all stages but those that cannot have another number of blocks.
BlockLayout neighbour_of(BlockLayout blocks, const Pipeline& p) {
  int richer = -1;
  for (int s = 0; s + 1 < p.num_stages; s += 2) {
    int64_t &a = blocks[size_t(first_part(p, s))], &b = blocks[size_t(first_part(p, s + 1))];
    if (a > 1) {
      --a, ++b;
      richer = s + 1;
    } else if (b > 1) {
      --b, ++a;
      richer = s;
    }
  }
  if (p.num_stages % 2 == 0 || richer < 0) return blocks;
  int64_t& last = blocks[size_t(first_part(p, p.num_stages - 1))];
  if (last < 2) return blocks;
  --last;
  ++blocks[size_t(first_part(p, richer))];
  return blocks;
}

std::vector<StageLine> lines_through(const UnequalForecast& a, const UnequalForecast& b) {
  std::vector<StageLine> lines;
  for (size_t s = 0; s < a.stages.size(); ++s) {
    const UnequalStage &x = a.stages[s], &y = b.stages[s];
    StageLine line{.blocks = x.blocks,
                   .seconds = x.busy_s,
                   .each_s = x.busy_s / double(std::max<int64_t>(1, x.blocks)),
                   .bytes = double(x.memory_bytes),
                   .each_bytes = double(x.memory_bytes) / double(std::max<int64_t>(1, x.blocks)),
                   .room = x.room_bytes};
    if (x.blocks != y.blocks) {
      const auto more = double(y.blocks - x.blocks);
      line.each_s = std::max(0.0, (y.busy_s - x.busy_s) / more);
      line.each_bytes = std::max(0.0, double(y.memory_bytes - x.memory_bytes) / more);
    }
    lines.push_back(line);
  }
  return lines;
}

// A stage's virtual stage with the fewest blocks, or the most: the first of several.
int64_t& fewest(BlockLayout& blocks, const Pipeline& p, int stage) {
  int64_t* least = &blocks[size_t(first_part(p, stage))];
  for (int chunk = 1; chunk < p.num_chunks; ++chunk)
    if (int64_t& one = blocks[size_t(virtual_stage(p, {stage, chunk}))]; one < *least) least = &one;
  return *least;
}
int64_t& most_of(BlockLayout& blocks, const Pipeline& p, int stage) {
  int64_t* most = &blocks[size_t(first_part(p, stage))];
  for (int chunk = 1; chunk < p.num_chunks; ++chunk)
    if (int64_t& one = blocks[size_t(virtual_stage(p, {stage, chunk}))]; one > *most) most = &one;
  return *most;
}

// One block after the other goes where the stage takes least with it: so the longest stage is as short as lines allow,
// for none falls. Of equals the later stage, where fewer micro-batches are alive. None where there is no room.
std::optional<BlockLayout> cut_by(const std::vector<StageLine>& lines, const std::vector<int64_t>& most,
                                  const Pipeline& p, int64_t num_blocks) {
  BlockLayout blocks(size_t(p.num_virtual_stages()), 1);
  std::vector<int64_t> has(lines.size(), p.num_chunks);
  for (size_t s = 0; s < has.size(); ++s)
    if (has[s] > most[s]) return {};
  for (int64_t left = num_blocks - p.num_virtual_stages(); left > 0; --left) {
    int best = -1;
    for (size_t s = 0; s < lines.size(); ++s)
      if (has[s] < most[s] &&
          (best < 0 || lines[s].seconds_with(has[s] + 1) <= lines[size_t(best)].seconds_with(has[size_t(best)] + 1)))
        best = int(s);
    if (best < 0) return {};
    ++has[size_t(best)];
    ++fewest(blocks, p, best);
  }
  return blocks;
}

bool has_room(const UnequalForecast& f) {
  return std::all_of(f.stages.begin(), f.stages.end(), [](const UnequalStage& s) { return s.has_room(); });
}

// The stages, those that are busy longest first.
std::vector<int> by_busy(const UnequalForecast& f) {
  std::vector<int> stages(f.stages.size());
  std::iota(stages.begin(), stages.end(), 0);
  std::stable_sort(stages.begin(), stages.end(),
                   [&](int a, int b) { return f.stages[size_t(a)].busy_s > f.stages[size_t(b)].busy_s; });
  return stages;
}

// None: weft refuses this cut (a stage cannot keep parallel.memory_budget).
std::optional<UnequalForecast> forecast_if_able(UnequalPlanner& planner, const BlockLayout& blocks) {
  try {
    return planner.forecast(blocks);
  } catch (const ConfigError&) { return {}; }
}

// As long as it gains, a block goes from the stage that is busy longest to one of those that are least.
UnequalForecast polished(UnequalPlanner& planner, UnequalForecast f) {
  const Pipeline& p = f.work.pipeline;
  for (int round = 0; round < 2 * p.num_stages; ++round) {
    std::vector<int> stages = by_busy(f);
    const int from = stages.front();
    std::reverse(stages.begin(), stages.end());
    std::optional<UnequalForecast> better;
    for (size_t i = 0; i < std::min(kMostTargets, stages.size()) && stages[i] != from && !better; ++i) {
      BlockLayout blocks = f.blocks;
      if (most_of(blocks, p, from) < 2) return f;
      --most_of(blocks, p, from);
      ++fewest(blocks, p, stages[i]);
      better = forecast_if_able(planner, blocks);
      if (better && (!has_room(*better) || better->step.step_s >= f.step.step_s)) better.reset();
    }
    if (!better) return f;
    f = std::move(*better);
  }
  return f;
}

}  // namespace

std::optional<UnequalForecast> UnequalPlanner::better_cut(const UnequalForecast& now) {
  const Pipeline& p = now.work.pipeline;
  const int64_t num_blocks = std::accumulate(now.blocks.begin(), now.blocks.end(), int64_t{0});
  if (p.num_stages == 1 || num_blocks <= p.num_virtual_stages()) return {};
  const auto beside = forecast_if_able(*this, neighbour_of(now.blocks, p));
  if (!beside) return {};
  const std::vector<StageLine> lines = lines_through(now, *beside);
  std::vector<int64_t> most;
  for (const StageLine& line : lines) most.push_back(line.most());
  for (int cut = 0; cut < kMostCuts; ++cut) {
    const auto blocks = cut_by(lines, most, p, num_blocks);
    if (!blocks) return {};
    auto found = forecast_if_able(*this, *blocks);
    if (!found) return {};
    if (has_room(*found)) {
      const UnequalForecast best = polished(*this, std::move(*found));
      if (now.fits() && best.step.step_s >= (1 - kGains) * now.step.step_s) return {};
      return best;
    }
    for (size_t s = 0; s < most.size(); ++s)
      if (!found->stages[s].has_room()) most[s] = found->stages[s].blocks - 1;
  }
  return {};
}

}  // namespace weft
