#include "weft/forecast/layout_bounds.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/forecast/price.h"
#include "weft/plan/run_plan.h"
#include "weft/schedule/step_time.h"

namespace weft {
namespace {

constexpr int64_t kSmallMicroBatches = 3;  // the first, one like all others, and the last, which may send gradients

LayoutChoice of_one_rank(RecomputeKind recompute) { return {.recompute = recompute, .sequence_parallel = true}; }

size_t place_of(Do what) { return what == Do::forward ? 0 : what == Do::wgrad ? 2 : 1; }

// The cheapest action of each kind, without the end of the step.
SmallTimes::Seconds action_seconds(const RunWork& run, const ProgramProfile& profile) {
  SmallTimes::Seconds least = {-1, -1, -1};
  RunWork one = run;
  one.num_micro_batches = 1;
  for (const ActionWork& action : run.kinds[0].actions) {
    one.kinds = {StageWork{.actions = {action}}};
    one.kinds[0].actions[0].times = 1;
    const double seconds = price_step(one, profile).step_s;
    double& known = least[place_of(action.what)];
    known = known < 0 ? seconds : std::min(known, seconds);
  }
  for (double& seconds : least) seconds = std::max(0.0, seconds);
  return least;
}

double more(double a, double b) { return std::max(0.0, a - b); }

// Chunks of a micro-batch that the first stage holds at once, forward till dgrad (schedule/schedule.h).
int64_t alive_of(const Pipeline& p, int64_t m) {
  const int64_t stages = p.num_stages, chunks = p.num_chunks;
  if (p.kind == ScheduleKind::gpipe) return m;
  if (p.kind == ScheduleKind::interleaved_1f1b) return std::min(2 * stages - 1 + (chunks - 1) * stages, m * chunks);
  return std::min(stages, m);
}

}  // namespace

size_t SmallRuns::size() const {
  std::lock_guard lock(mutex_);
  return times_.size() + memory_.size();
}

double best_rate(const DeviceSpec& device, const ProgramProfile& p) {
  const double part = std::max({p.products, p.grouped, p.attention, p.attention_backward});
  return std::max(device.products.bits16 * part, device.products.f32);
}

LayoutBounds::LayoutBounds(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                           const ProgramProfile& profile, SmallRuns& runs)
    : recipe_(recipe), config_(config), cluster_(cluster), profile_(profile), runs_(runs) {
  const double rate = best_rate(cluster.device, profile);
  for (const RecomputeKind kind : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
    const RunPlan plan = prepare_run(with_choice(recipe, of_one_rank(kind)), config, 0);
    const Arithmetic all = measure_arithmetic(plan.model, plan.step, *plan.optimizer, WorkspaceModel());
    flops_s_[size_t(kind)] = all.hardware_flops / rate;
    model_ = plan.model;
  }
  for (int64_t l = 0; l < model_.num_layers; ++l) {
    const LayerSpec layer = model_.layer(l);
    const auto found = std::find(kinds_.begin(), kinds_.end(), layer);
    kind_of_.push_back(size_t(found - kinds_.begin()));
    if (found == kinds_.end()) kinds_.push_back(layer);
  }
}

double LayoutBounds::by_arithmetic(const LayoutChoice& c) const {
  return kSurePart * flops_s_[size_t(c.recompute)] / double(c.num_devices());
}

double LayoutBounds::by_stage(const LayoutChoice& given) {
  LayoutChoice c = given;  // as it is without anything that ZeRO sends
  c.dp = c.ep / std::gcd(c.ep, c.cp);
  c.zero_stage = c.zero_shard_size = 0;
  c.schedule = ScheduleKind::one_f_one_b;
  const SmallTimes& run = times_of(c);
  if (run.blocks.empty()) return by_arithmetic(given);
  const auto seconds = [&](size_t kind) {
    const SmallTimes::Seconds& s = run.blocks[kind];
    return s[0] + s[1] + s[2];
  };
  const BlockLayout& layout = blocks_of(given);
  const Pipeline pipeline = make_pipeline(given.schedule, int(given.pp), int(given.chunks));
  std::vector<double> stages(size_t(given.pp));
  for (int v = 0; v < pipeline.num_virtual_stages(); ++v)
    stages[size_t(place_of(pipeline, v).stage)] += sum_of(layout, v, seconds);
  const double ends = run.ends[0] + run.ends[1] + run.ends[2];
  const double mean = (ends + std::accumulate(stages.begin(), stages.end(), 0.0)) / double(given.pp);
  const double slowest = std::max(mean, *std::max_element(stages.begin(), stages.end()));
  const int64_t m = recipe_.train.global_batch_size / given.micro_batch_size / given.dp;
  return std::max(by_arithmetic(given), kSurePart * double(m) * slowest);
}

double LayoutBounds::by_schedule(const LayoutChoice& c) {
  const SmallTimes& run = times_of(c);
  if (run.blocks.empty()) return by_stage(c);
  const Pipeline pipeline = make_pipeline(c.schedule, int(c.pp), int(c.chunks));
  const BlockLayout& layout = blocks_of(c);
  ActionTimes times = uniform_times(pipeline, 0, 0, 0);
  for (int v = 0; v < pipeline.num_virtual_stages(); ++v) {
    SmallTimes::Seconds s = {};
    for (size_t i = 0; i < s.size(); ++i) s[i] = sum_of(layout, v, [&](size_t kind) { return run.blocks[kind][i]; });
    for (size_t i = 0; i < s.size() && c.pp == 1; ++i) s[i] += run.ends[i];
    times.forward[size_t(v)] = s[0];
    times.dgrad[size_t(v)] = s[1];
    times.wgrad[size_t(v)] = s[2];
  }
  const int64_t m = recipe_.train.global_batch_size / c.micro_batch_size / c.dp;
  const double all = c.pp == 1 ? double(m) * (times.forward[0] + times.dgrad[0] + times.wgrad[0])
                               : seconds_of_step(pipeline, times, m);
  return std::max(by_stage(c), kSurePart * all);
}

double LayoutBounds::part_of_blocks(const LayoutChoice& c) {
  const SmallTimes& run = times_of(c);
  if (run.blocks.empty()) return 0;
  const auto sum = [](const SmallTimes::Seconds& s) { return s[0] + s[1] + s[2]; };
  double all = sum(run.ends), cheapest = 1e30;
  for (const size_t kind : kind_of_) {
    const double one = sum(run.blocks[kind]);
    all += one;
    cheapest = std::min(cheapest, one);
  }
  return cheapest * double(kind_of_.size()) / std::max(1e-30, all);
}

double LayoutBounds::memory(const LayoutChoice& c) {
  const SmallMemory& run = memory_of(c);
  if (run.blocks.empty()) return 0;
  const Pipeline pipeline = make_pipeline(c.schedule, int(c.pp), int(c.chunks));
  const BlockLayout& layout = blocks_of(c);
  double kept = c.pp == 1 ? run.ends.kept : 0, alive = -1;
  for (int chunk = 0; chunk < pipeline.num_chunks; ++chunk) {
    const int v = virtual_stage(pipeline, {0, chunk});
    kept += sum_of(layout, v, [&](size_t kind) { return run.blocks[kind].kept; });
    const double one = sum_of(layout, v, [&](size_t kind) { return run.blocks[kind].alive; });
    alive = alive < 0 ? one : std::min(alive, one);
  }
  const int64_t m = recipe_.train.global_batch_size / c.micro_batch_size / c.dp;
  return kSurePart * (kept + double(alive_of(pipeline, m)) * (alive + (c.pp == 1 ? run.ends.alive : 0)));
}

// The chunks of a stage have as many blocks as each other, but for one.
int64_t LayoutBounds::most_blocks(const LayoutChoice& c, int stage, double room) {
  const SmallMemory& run = memory_of(c);
  if (run.blocks.empty()) return model_.num_layers;
  const Pipeline pipeline = make_pipeline(c.schedule, int(c.pp), int(c.chunks));
  const int64_t m = recipe_.train.global_batch_size / c.micro_batch_size / c.dp, chunks = pipeline.num_chunks;
  SmallBytes least = run.blocks[0];
  for (const SmallBytes& block : run.blocks)
    least = {.kept = std::min(least.kept, block.kept), .alive = std::min(least.alive, block.alive)};
  const double whole = least.kept * double(chunks) + least.alive * double(most_alive(pipeline, stage, m));
  const auto of_each_chunk = int64_t(std::min(room / kSurePart / std::max(1.0, whole), double(model_.num_layers)));
  return of_each_chunk * chunks + chunks - 1;
}

// The most chunks that a stage holds at once, each of one micro-batch, from its forward to its dgrad.
int64_t LayoutBounds::most_alive(const Pipeline& p, int stage, int64_t m) {
  m = std::min<int64_t>(m, 4 * p.num_stages);  // more are not alive at once, but in GPipe: this is a bound
  std::lock_guard lock(mutex_);
  const auto [known, is_new] = alive_.try_emplace({int64_t(p.kind), p.num_stages, p.num_chunks, stage, m}, 0);
  if (!is_new) return known->second;
  int64_t alive = 0;
  for (const Action& action : schedule_of(p, stage, m)) {
    if (action.what == Do::forward) known->second = std::max(known->second, ++alive);
    if (action.what == Do::backward || action.what == Do::dgrad) --alive;
  }
  return known->second;
}

template <class Of>
double LayoutBounds::sum_of(const BlockLayout& layout, int v, Of of) const {
  double sum = 0;
  const int64_t first = first_block(layout, v);
  for (int64_t b = first; b < first + layout[size_t(v)]; ++b) sum += of(kind_of_[size_t(b)]);
  return sum;
}

const BlockLayout& LayoutBounds::blocks_of(const LayoutChoice& c) {
  const LayoutChoice key{.pp = c.pp, .schedule = c.schedule, .chunks = c.chunks};
  std::lock_guard lock(mutex_);
  BlockLayout& layout = blocks_[key];
  if (layout.empty()) layout = block_layout_of(with_choice(recipe_, key), model_);
  return layout;
}

// What decides over a micro-batch on a stage; splits of backward are those of ZB-H1.
const SmallTimes& LayoutBounds::times_of(const LayoutChoice& c) {
  LayoutChoice key = c;
  const bool splits = c.schedule == ScheduleKind::zb_h1 || c.schedule == ScheduleKind::zbv;
  key.schedule = splits ? ScheduleKind::zb_h1 : ScheduleKind::one_f_one_b;
  key.pp = 1;
  key.chunks = 0;
  SmallRuns::Known<SmallTimes>* known = nullptr;
  {
    std::lock_guard lock(runs_.mutex_);
    known = &runs_.times_[{key, small_micro_batches(key)}];
  }
  std::call_once(known->once, [&] { known->value = measure_times(key); });
  return known->value;
}

const SmallMemory& LayoutBounds::memory_of(const LayoutChoice& c) {
  LayoutChoice key = c;
  key.schedule = ScheduleKind::one_f_one_b;
  key.pp = 1;
  key.chunks = 0;
  SmallRuns::Known<SmallMemory>* known = nullptr;
  {
    std::lock_guard lock(runs_.mutex_);
    known = &runs_.memory_[{key, small_micro_batches(key)}];
  }
  std::call_once(known->once, [&] { known->value = measure_bytes(key); });
  return known->value;
}

int64_t LayoutBounds::small_micro_batches(const LayoutChoice& c) const {
  return std::clamp<int64_t>(recipe_.train.global_batch_size / (c.micro_batch_size * c.dp), 1, kSmallMicroBatches);
}

RunPlan LayoutBounds::small_plan(const LayoutChoice& c, std::vector<LayerSpec> layers) const {
  Recipe recipe = with_choice(recipe_, c);
  recipe.train.global_batch_size = c.micro_batch_size * c.dp * small_micro_batches(c);
  HfConfig config = config_;
  config.spec.num_layers = int64_t(layers.size());
  if (!config.spec.layers.empty()) config.spec.layers = std::move(layers);
  return prepare_run(recipe, std::move(config), 0);
}

SmallTimes LayoutBounds::measure_times(const LayoutChoice& c) const {
  const auto measured = [&](std::vector<LayerSpec> layers) {
    return action_seconds(actions_of(small_plan(c, std::move(layers)), cluster_, ProductFormat::bits16), profile_);
  };
  SmallTimes run;
  try {
    const SmallTimes::Seconds one = measured({kinds_[0]});
    for (const LayerSpec& kind : kinds_) {
      const SmallTimes::Seconds two = measured({kinds_[0], kind});
      SmallTimes::Seconds& block = run.blocks.emplace_back();
      for (size_t i = 0; i < block.size(); ++i) block[i] = more(two[i], one[i]);
    }
    for (size_t i = 0; i < run.ends.size(); ++i) run.ends[i] = more(one[i], run.blocks[0][i]);
  } catch (const Error&) { return {}; }  // the layout itself says why, where it is planned whole
  return run;
}

SmallMemory LayoutBounds::measure_bytes(const LayoutChoice& c) const {
  const auto measured = [&](std::vector<LayerSpec> layers) {
    const RunPlan plan = small_plan(c, std::move(layers));
    const MemoryPlan memory = measure_memory(plan.model, plan.step, *plan.optimizer, WorkspaceModel());
    const PersistentArenas::Sizes& p = memory.persistent;
    return SmallBytes{.kept = double(p.params + p.grads + p.states + p.frozen),
                      .alive = double(memory.chunks[0].till_dgrad + memory.chunks[0].till_wgrad)};
  };
  const auto beyond = [](const SmallBytes& a, const SmallBytes& b) {
    return SmallBytes{.kept = more(a.kept, b.kept), .alive = more(a.alive, b.alive)};
  };
  SmallMemory run;
  try {
    const SmallBytes one = measured({kinds_[0]});
    for (const LayerSpec& kind : kinds_) run.blocks.push_back(beyond(measured({kinds_[0], kind}), one));
    run.ends = beyond(one, run.blocks[0]);
  } catch (const Error&) { return {}; }
  return run;
}

}  // namespace weft
