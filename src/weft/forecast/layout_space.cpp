#include "weft/forecast/layout_space.h"

#include <algorithm>
#include <functional>

#include "weft/base/error.h"
#include "weft/plan/layout.h"
#include "weft/recipe/autotune_settings.h"

namespace weft {
namespace {

constexpr int64_t kLeastTokensOfCp = 2048, kMostTokens = 1 << 15, kMostChunks = 10;

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

// Goes through all settings, one after the other: each level sets its own and calls the next.
class Enumeration {
 public:
  Enumeration(int64_t num_devices, const Recipe& recipe, const ModelSpec& model, const ClusterSpec& cluster)
      : num_devices_(num_devices), recipe_(recipe), model_(model), cluster_(cluster) {}

  std::vector<LayoutChoice> run() {
    for (const int64_t tp : divisors_of(num_devices_)) {
      now_.tp = tp;
      for (const int64_t pp : divisors_of(num_devices_ / tp)) {
        now_.pp = pp;
        if (tp <= model_.num_heads && pp <= model_.num_layers) with_contexts(num_devices_ / tp / pp);
      }
    }
    return std::move(all_);
  }
  int64_t refused() const { return refused_; }

 private:
  void with_contexts(int64_t rest) {
    for (const int64_t cp : divisors_of(rest)) {
      const int64_t length = recipe_.train.seq_length;
      if (cp > 1 && (length % (2 * cp) != 0 || length / cp < kLeastTokensOfCp)) continue;
      now_.cp = cp;
      now_.dp = rest / cp;
      if (recipe_.train.global_batch_size % now_.dp != 0) continue;
      now_.cp_a2a_size = 0;
      now_.cp_comm_type = CpCommType::p2p;
      with_experts();
      if (cp == 1) continue;
      for (const CpCommType kind : {CpCommType::all_gather, CpCommType::a2a}) {
        now_.cp_comm_type = kind;
        with_experts();
      }
      now_.cp_comm_type = CpCommType::a2a_p2p;
      for (const int64_t size : divisors_of(cp)) {
        now_.cp_a2a_size = size;
        if (size > 1 && size < cp) with_experts();
      }
    }
  }
  void with_experts() {
    const int64_t most = model_.has_experts() ? model_.experts.count : 1;
    for (const int64_t ep : divisors_of(most)) {
      now_.ep = ep;
      if (now_.dp * now_.cp % ep == 0) with_micro_batches();
    }
  }
  void with_micro_batches() {
    const int64_t each = recipe_.train.seq_length / now_.cp * sequences_of_sample(recipe_);
    for (const int64_t size : divisors_of(recipe_.train.global_batch_size / now_.dp)) {
      if (size > 1 && size * each > kMostTokens) break;
      now_.micro_batch_size = size;
      now_.sequence_parallel = now_.tp > 1 && size * each % now_.tp == 0;
      now_.schedule = ScheduleKind::one_f_one_b;
      now_.chunks = 0;
      if (can_be_cut())
        with_schedules();
      else
        ++refused_;
    }
  }
  bool can_be_cut() const {
    LayoutChoice one = now_;
    one.zero_stage = 0;
    one.zero_shard_size = 0;
    try {
      check_layout(with_choice(recipe_, one), model_);
      return true;
    } catch (const ConfigError&) { return false; }
  }
  void with_schedules() {
    with_zero();
    if (now_.pp == 1) return;
    now_.schedule = ScheduleKind::zb_h1;
    with_zero();
    if (2 * now_.pp > model_.num_layers) return;
    now_.schedule = ScheduleKind::zbv;
    with_zero();
    now_.schedule = ScheduleKind::interleaved_1f1b;
    for (int64_t chunks = 2; chunks <= kMostChunks && chunks * now_.pp <= model_.num_layers; ++chunks) {
      now_.chunks = chunks;
      if (chunks == 2 || model_.num_layers % (chunks * now_.pp) == 0) with_zero();
    }
    now_.chunks = 0;
  }
  void with_zero() {
    const int64_t ranks = now_.dp * now_.cp, near = cluster_.domain / now_.tp;
    for (int64_t stage = 0; stage <= (ranks > 1 ? 3 : 0); ++stage) {
      now_.zero_stage = stage;
      now_.zero_shard_size = 0;
      with_recompute();
      if (stage < 3 || near < 2 || near >= ranks || ranks % near != 0) continue;
      now_.zero_shard_size = near;
      with_recompute();
    }
  }
  void with_recompute() {
    for (const RecomputeKind kind : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full}) {
      now_.recompute = kind;
      all_.push_back(now_);
    }
  }

  int64_t num_devices_, refused_ = 0;
  const Recipe& recipe_;
  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  LayoutChoice now_ = {};
  std::vector<LayoutChoice> all_;
};

}  // namespace

LayoutChoice choice_of(const Recipe& r) {
  const Recipe::Parallel& p = r.parallel;
  return {.dp = p.dp,
          .tp = p.tp,
          .pp = p.pp,
          .cp = p.cp,
          .ep = p.ep,
          .micro_batch_size = r.train.micro_batch_size,
          .zero_stage = p.zero_stage,
          .zero_shard_size = p.zero_shard_size,
          .recompute = p.recompute,
          .schedule = p.pipeline_schedule,
          .chunks = p.virtual_pipeline_parallel_size,
          .cp_comm_type = p.cp_comm_type,
          .cp_a2a_size = p.cp_a2a_size,
          .sequence_parallel = p.sequence_parallel};
}

Recipe with_choice(const Recipe& recipe, const LayoutChoice& c) {
  Recipe r = recipe;
  Recipe::Parallel& p = r.parallel;
  p.dp = c.dp;
  p.tp = c.tp;
  p.pp = c.pp;
  p.cp = c.cp;
  p.ep = c.ep;
  r.train.micro_batch_size = c.micro_batch_size;
  p.zero_stage = c.zero_stage;
  p.zero_shard_size = c.zero_shard_size;
  p.recompute = c.recompute;
  if (c.recompute != RecomputeKind::budget) p.memory_budget.clear();
  p.pipeline_schedule = c.schedule;
  p.virtual_pipeline_parallel_size = c.chunks;
  p.cp_comm_type = c.cp_comm_type;
  p.cp_a2a_size = c.cp_a2a_size;
  p.sequence_parallel = c.sequence_parallel;
  if (!c.order.empty()) p.order = c.order;
  p.pipeline_layout.clear();
  p.micro_batches.clear();
  fit_frozen(p);
  if (settings_to_tune(r).empty()) r.train.autotune = false;
  return r;
}

LayoutChoice settled(LayoutChoice c) {
  if (c.dp * c.cp == 1) c.zero_stage = 0;
  if (c.zero_stage == 0 || (c.zero_shard_size > 0 && c.dp * c.cp % c.zero_shard_size != 0)) c.zero_shard_size = 0;
  if (c.tp == 1) c.sequence_parallel = false;
  if (c.pp == 1) {
    c.schedule = ScheduleKind::one_f_one_b;
    c.chunks = 0;
  }
  if (c.cp == 1) c.cp_comm_type = CpCommType::p2p;
  if (c.cp == 1 || (c.cp_a2a_size > 0 && c.cp % c.cp_a2a_size != 0)) c.cp_a2a_size = 0;
  if (c.cp_comm_type == CpCommType::a2a_p2p && (c.cp_a2a_size < 2 || c.cp_a2a_size >= c.cp)) {
    c.cp_comm_type = CpCommType::a2a;
    c.cp_a2a_size = 0;
  }
  return c;
}

std::string to_string(const LayoutChoice& c) {
  std::string text = fmt::format("dp {}", c.dp);
  if (c.tp > 1) text += fmt::format(", tp {}{}", c.tp, c.sequence_parallel ? "" : " without sp");
  if (c.pp > 1)
    text +=
        fmt::format(", pp {} ({}{})", c.pp, name_of(c.schedule), c.chunks > 0 ? fmt::format(" x {}", c.chunks) : "");
  if (c.cp > 1)
    text += fmt::format(", cp {} ({}{})", c.cp, c.cp_comm_type,
                        c.cp_a2a_size > 0 ? fmt::format(" by {}", c.cp_a2a_size) : "");
  if (c.ep > 1) text += fmt::format(", ep {}", c.ep);
  text += fmt::format(", micro-batch {}", c.micro_batch_size);
  if (c.zero_stage > 0)
    text += fmt::format(", zero {}{}", c.zero_stage,
                        c.zero_shard_size > 0 ? fmt::format(" over {}", c.zero_shard_size) : "");
  if (c.recompute != RecomputeKind::none) text += fmt::format(", recompute {}", c.recompute);
  if (!c.order.empty()) text += fmt::format(", order {}", c.order);
  return text;
}

std::vector<LayoutChoice> layouts_on(int64_t num_devices, const Recipe& recipe, const ModelSpec& model,
                                     const ClusterSpec& cluster, int64_t& refused) {
  Enumeration enumeration(num_devices, recipe, model, cluster);
  std::vector<LayoutChoice> all = enumeration.run();
  refused += enumeration.refused();
  return all;
}

}  // namespace weft
