#include "weft/plan/recompute_stage.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

int64_t sum_of(const std::vector<int64_t>& all) { return std::accumulate(all.begin(), all.end(), int64_t{0}); }

// Of the ways of a stage: any levels that there may be, from 1 to 15, as a set of bits.
constexpr unsigned kLevelSets = 1U << kBlockRecomputes;
RecomputeLevels levels_of(unsigned set) {
  RecomputeLevels allowed{};
  for (size_t level = 0; level < kBlockRecomputes; ++level) allowed[level] = (set >> level & 1U) != 0;
  return allowed;
}

// Where wgrad never comes right behind dgrad, gradients between the two are kept of all blocks of a chunk, else of one.
bool has_dgrads_apart(const Schedule& schedule, int chunk) {
  return std::any_of(schedule.begin(), schedule.end(),
                     [&](const Action& a) { return a.chunk == chunk && a.what == Do::dgrad; });
}

}  // namespace

RecomputeStage::RecomputeStage(const RunPlan& run, std::vector<StepSpec> steps, const WorkspaceModel& workspace)
    : run_(run), steps_(std::move(steps)), workspace_(workspace) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int64_t bytes = measure_memory(run.model, steps_[i], *run.optimizer, workspace).total_bytes();
    if (bytes > keeping_all_) fullest_ = i;
    keeping_all_ = std::max(keeping_all_, bytes);
  }
}

int64_t RecomputeStage::choose(int64_t budget, const BlockFlops& flops, BlockLevels& levels) {
  if (keeping_all_ <= budget) return keeping_all_;
  measure();
  for (size_t k = 0; k < kinds_.size(); ++k)
    for (size_t level = 0; level < kBlockRecomputes; ++level) {
      const auto& of_block = flops[size_t(kinds_[k].blocks[0])];
      groups_[k].flops[level] = of_block[level] - of_block[0];
    }
  for (int64_t aim = budget;;) {
    const std::optional<Way> way = cheapest(aim);
    if (!way) break;
    write(*way, levels);
    int64_t bytes = planned(levels, budget);
    if (bytes > budget) {  // another rank is fuller, or blocks together need more than their sum
      aim = std::min(aim - (bytes - budget), way->bytes - 1);  // so that the next way is another one
      continue;
    }
    while (do_less(budget, bytes, levels)) continue;
    return bytes;
  }
  int64_t bytes = least(levels);
  while (bytes <= budget && do_less(budget, bytes, levels)) continue;
  return bytes;
}

int64_t RecomputeStage::least(BlockLevels& levels) {
  measure();
  write(smallest(), levels);
  int64_t bytes = planned(levels);
  for (size_t level = 0; level < kBlockRecomputes; ++level) {
    if (uniform_[level].total >= bytes) continue;
    BlockLevels same = levels;
    for (const Kind& k : kinds_)
      for (const int64_t l : k.blocks) same[size_t(l)] = BlockRecompute(level);
    const int64_t then = planned(same, bytes - 1);
    if (then >= bytes) continue;
    bytes = then;
    levels = std::move(same);
  }
  return bytes;
}

void RecomputeStage::find_kinds() {
  const std::vector<ModelPart>& parts = steps_[fullest_].model.parts;
  for (int chunk = 0; chunk < int(parts.size()); ++chunk)
    for (int64_t l = parts[size_t(chunk)].blocks.first; l < parts[size_t(chunk)].blocks.end(); ++l) {
      const LayerSpec layer = run_.model.layer(l);
      const auto known = std::find_if(kinds_.begin(), kinds_.end(),
                                      [&](const Kind& k) { return k.chunk == chunk && k.layer == layer; });
      Kind& kind = known == kinds_.end() ? kinds_.emplace_back(Kind{chunk, layer, {}}) : *known;
      kind.blocks.push_back(l);
    }
}

// Blocks of one layer's kind are measured together in all chunks, whose bytes a plan has apart.
void RecomputeStage::measure() {
  if (!kinds_.empty()) return;
  find_kinds();
  std::vector<LayerSpec> layers;
  for (const Kind& k : kinds_)
    if (std::find(layers.begin(), layers.end(), k.layer) == layers.end()) layers.push_back(k.layer);
  for (const Kind& k : kinds_) groups_.push_back({.count = int64_t(k.blocks.size())});
  for (size_t level = 0; level < kBlockRecomputes; ++level)
    uniform_[level] = parts_where(BlockRecompute(level), nullptr);
  for (size_t level = 1; level < kBlockRecomputes; ++level)
    for (const LayerSpec& layer : layers) {
      const Parts now = layers.size() == 1 ? uniform_[level] : parts_where(BlockRecompute(level), &layer);
      for (size_t i = 0; i < kinds_.size(); ++i)
        if (kinds_[i].layer == layer) {
          const int64_t more = now.sums[size_t(kinds_[i].chunk)] - uniform_[0].sums[size_t(kinds_[i].chunk)];
          groups_[i].bytes[level] = more / groups_[i].count;
        }
    }
}

// The plan of the fullest rank where blocks of this kind, or all, compute so much again.
RecomputeStage::Parts RecomputeStage::parts_where(BlockRecompute again, const LayerSpec* layer) const {
  StepSpec step = steps_[fullest_];
  step.model.recompute.assign(size_t(run_.model.num_layers), BlockRecompute::none);
  for (const Kind& k : kinds_)
    if (layer == nullptr || k.layer == *layer)
      for (const int64_t l : k.blocks) step.model.recompute[size_t(l)] = again;
  const MemoryPlan plan = measure_memory(run_.model, step, *run_.optimizer, workspace_);
  Parts parts{.sums = {},
              .most = {plan.persistent.total(), plan.handover, plan.replay, plan.scratch, plan.workspace,
                       plan.evaluation, plan.writing, plan.taught, plan.teacher_rows},
              .total = plan.total_bytes()};
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const MemoryPlan::Chunk& k = plan.chunks[c];
    const int64_t gradients = k.slots.dgrad_till_wgrad * k.dgrad_till_wgrad;
    const bool apart = has_dgrads_apart(step.schedule, int(c));
    parts.sums.push_back(k.slots.till_dgrad * k.till_dgrad + k.slots.till_wgrad * k.till_wgrad +
                         (apart ? gradients : 0));
    parts.most.push_back(apart ? 0 : gradients);
  }
  return parts;
}

int64_t RecomputeStage::most_of(const RecomputeLevels& allowed) const {
  std::vector<int64_t> most(uniform_[0].most.size());
  for (size_t level = 0; level < kBlockRecomputes; ++level)
    for (size_t i = 0; i < most.size() && allowed[level]; ++i) most[i] = std::max(most[i], uniform_[level].most[i]);
  return sum_of(most);
}

RecomputeStage::Way RecomputeStage::way_of(std::vector<RecomputeCounts> counts, const RecomputeLevels& allowed) const {
  Way way{.counts = std::move(counts), .bytes = most_of(allowed) + sum_of(uniform_[0].sums)};
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t level = 0; level < kBlockRecomputes; ++level) {
      const int64_t count = way.counts[g][level];
      way.flops += double(count) * groups_[g].flops[level];
      way.again += level > 0 ? count : 0;
      way.bytes += count * groups_[g].bytes[level];
    }
  return way;
}

// Which levels there are decides over the bytes that do not add up; so each set of levels is asked.
std::optional<RecomputeStage::Way> RecomputeStage::cheapest(int64_t budget) const {
  std::optional<Way> best;
  for (unsigned set = 1; set < kLevelSets; ++set) {
    const RecomputeLevels allowed = levels_of(set);
    auto counts = least_recompute(groups_, allowed, budget - most_of(allowed) - sum_of(uniform_[0].sums));
    if (!counts) continue;
    Way way = way_of(std::move(*counts), allowed);
    if (!best || std::pair(way.flops, way.again) < std::pair(best->flops, best->again)) best = std::move(way);
  }
  return best;
}

RecomputeStage::Way RecomputeStage::smallest() const {
  std::optional<Way> best;
  for (unsigned set = 1; set < kLevelSets; ++set) {
    const RecomputeLevels allowed = levels_of(set);
    std::vector<RecomputeCounts> counts(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::optional<size_t> least;
      for (size_t level = 0; level < kBlockRecomputes; ++level)
        if (allowed[level] && (!least || groups_[g].bytes[level] < groups_[g].bytes[*least])) least = level;
      counts[g][*least] = groups_[g].count;
    }
    Way way = way_of(std::move(counts), allowed);
    if (!best || way.bytes < best->bytes) best = std::move(way);
  }
  return std::move(*best);
}

// Those of a kind that compute most again come first.
void RecomputeStage::write(const Way& way, BlockLevels& levels) const {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    size_t at = 0;
    for (size_t level = kBlockRecomputes; level-- > 0;)
      for (int64_t i = 0; i < way.counts[k][level]; ++i) levels[size_t(kinds_[k].blocks[at++])] = BlockRecompute(level);
  }
}

// Of all ranks; those that are looked at first are enough where one of them does not fit the budget.
int64_t RecomputeStage::planned(const BlockLevels& levels, std::optional<int64_t> budget) const {
  int64_t most = 0;
  for (size_t i = 0; i < steps_.size() && !(budget && most > *budget); ++i) {
    StepSpec step = steps_[(fullest_ + i) % steps_.size()];
    step.model.recompute = levels;
    most = std::max(most, measure_memory(run_.model, step, *run_.optimizer, workspace_).total_bytes());
  }
  return most;
}

// Where bytes do not add up as they were expected to, there may be room left: lets one block compute less again, if
// that fits.
bool RecomputeStage::do_less(int64_t budget, int64_t& bytes, BlockLevels& levels) const {
  for (size_t k = 0; k < kinds_.size(); ++k)
    for (size_t from = kBlockRecomputes; from-- > 1;)
      for (size_t to = 0; to < from; ++to) {
        const RecomputeGroup& g = groups_[k];
        const auto at = std::find_if(kinds_[k].blocks.rbegin(), kinds_[k].blocks.rend(),
                                     [&](int64_t l) { return size_t(levels[size_t(l)]) == from; });
        const bool less = g.flops[to] < g.flops[from] || (g.flops[to] == g.flops[from] && to == 0);
        if (at == kinds_[k].blocks.rend() || !less || bytes + g.bytes[to] - g.bytes[from] > budget) continue;
        BlockLevels now = levels;
        now[size_t(*at)] = BlockRecompute(to);
        const int64_t then = planned(now, budget);
        if (then > budget) continue;
        bytes = then;
        levels = std::move(now);
        return true;
      }
  return false;
}

}  // namespace weft
