#include "weft/verify/sub_layouts.h"

#include <fmt/format.h>

#include <numeric>

#include "weft/plan/layout.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

using Parallel = Recipe::Parallel;

// What is left of dp x cp has fewer ranks among which experts, and frozen models, are dealt out.
void fit_experts(Parallel& p) {
  p.ep = std::gcd(p.ep, p.dp * p.cp);
  fit_frozen(p);
}

void without_zero(Parallel& p) {
  p.zero_stage = p.zero_shard_size = 0;
  fit_frozen(p);
}

// ZeRO remains over the other axis that it shards over, if there is one.
void without_dp(Parallel& p) {
  if (p.dp > 1) p.zero_shard_size = 0;
  p.dp = 1;
  p.micro_batches.clear();
  fit_experts(p);
  if (p.cp == 1) without_zero(p);
}

void without_head_groups(Parallel& p) {
  if (p.cp_a2a_size > 0) p.cp_comm_type = CpCommType::p2p;
  p.cp_a2a_size = 0;
}

void without_cp(Parallel& p) {
  if (p.cp == 1) return;
  without_head_groups(p);
  p.cp = 1;
  fit_experts(p);
  p.zero_shard_size = 0;
  if (p.dp == 1) without_zero(p);
}

void without_chunks(Parallel& p) {
  p.pipeline_schedule = ScheduleKind::one_f_one_b;
  p.virtual_pipeline_parallel_size = 0;
  p.pipeline_layout.clear();
}

void without_pp(Parallel& p) {
  p.pp = 1;
  without_chunks(p);
}

void fewer_dp(Parallel& p) {
  p.dp = 2;
  p.micro_batches.clear();
  fit_experts(p);
  p.zero_shard_size = 0;
}

void fewer_cp(Parallel& p) {
  without_head_groups(p);
  p.cp = 2;
  fit_experts(p);
  p.zero_shard_size = 0;
}

void shorter_pp(Parallel& p) {
  p.pp = 2;
  p.pipeline_layout.clear();
}

void without_recomputation(Parallel& p) {
  p.recompute = RecomputeKind::none;
  p.memory_budget.clear();
}

// What may be taken away, the larger things first. One that is not there changes nothing.
struct Removal {
  const char* name;
  void (*remove)(Parallel& p);
};
constexpr Removal kRemovals[] = {
    {"dp", without_dp},
    {"pp", without_pp},
    {"tp", [](Parallel& p) { p.tp = 1; }},
    {"cp", without_cp},
    {"ep", [](Parallel& p) { p.ep = 1; }},
    {"recomputation", without_recomputation},
    {"ZeRO", without_zero},
    {"sequence parallelism", [](Parallel& p) { p.sequence_parallel = false; }},
    {"the schedule", without_chunks},
    {"unequal micro-batches", [](Parallel& p) { p.micro_batches.clear(); }},
    {"the pipeline's layout", [](Parallel& p) { p.pipeline_layout.clear(); }},
    {"zero_shard_size", [](Parallel& p) { p.zero_shard_size = 0; }},
    {"shards of frozen models", [](Parallel& p) { p.frozen_shard_size = 0; }},
    {"ep of frozen models", [](Parallel& p) { p.frozen_ep = 0; }},
    {"the teacher's tp", [](Parallel& p) { p.teacher_tp = p.teacher_tp > 0 ? 1 : 0; }},
    {"the teacher's pp", [](Parallel& p) { p.teacher_pp = p.teacher_pp > 0 ? 1 : 0; }},
    {"the teacher's cp", [](Parallel& p) { p.teacher_cp = p.teacher_cp > 0 ? 1 : 0; }},
    {"the teacher's ep", [](Parallel& p) { p.teacher_ep = 1; }},
    {"dp beyond 2", [](Parallel& p) { p.dp > 2 ? fewer_dp(p) : void(); }},
    {"pp beyond 2", [](Parallel& p) { p.pp > 2 ? shorter_pp(p) : void(); }},
    {"groups of cp that exchange heads", without_head_groups},
    {"cp beyond 2", [](Parallel& p) { p.cp > 2 ? fewer_cp(p) : void(); }},
    {"ep beyond 2", [](Parallel& p) { p.ep > 2 && p.ep % 2 == 0 ? void(p.ep = 2) : void(); }},
    {"tp beyond 2", [](Parallel& p) { p.tp > 2 ? void(p.tp = 2) : void(); }},
};

}  // namespace

Recipe one_rank_of(Recipe recipe) {
  recipe.parallel = {};
  return recipe;
}

std::string layout_words(const Recipe& r) {
  const Parallel& p = r.parallel;
  std::string words;
  const auto say = [&](bool there, const std::string& what) {
    if (there) words += (words.empty() ? "" : ", ") + what;
  };
  say(p.dp > 1, fmt::format("dp {}", p.dp));
  say(has_unequal_shares(p), fmt::format("with {} micro-batches", text_of_shares(p.micro_batches)));
  say(p.cp > 1, fmt::format("cp {} by {}{}", p.cp, p.cp_comm_type,
                            p.cp_a2a_size > 0 ? fmt::format(" of {}", p.cp_a2a_size) : ""));
  say(p.ep > 1, fmt::format("ep {}", p.ep));
  say(p.dp * p.cp > 1 && p.zero_stage > 0, fmt::format("ZeRO stage {}", p.zero_stage));
  say(p.zero_stage > 0 && p.zero_shard_size > 0, fmt::format("over {}", p.zero_shard_size));
  say(p.frozen_shard_size > 0, fmt::format("frozen models over {}", p.frozen_shard_size));
  say(p.frozen_ep > 0, fmt::format("experts of frozen models over {}", p.frozen_ep));
  say(p.teacher_tp > 0, fmt::format("the teacher's tp {}", p.teacher_tp));
  say(p.teacher_pp > 0, fmt::format("the teacher's pp {}", p.teacher_pp));
  say(p.teacher_cp > 0, fmt::format("the teacher's cp {}", p.teacher_cp));
  say(p.teacher_ep > 1, fmt::format("the teacher's ep {}", p.teacher_ep));
  say(p.tp > 1, fmt::format("tp {}{}", p.tp, p.sequence_parallel ? " with sequence parallelism" : ""));
  say(p.pp > 1, fmt::format("pp {} by {}", p.pp, p.pipeline_schedule));
  say(p.pp == 1 && p.pipeline_schedule != ScheduleKind::one_f_one_b, fmt::format("schedule {}", p.pipeline_schedule));
  if (words.empty()) words = "one rank";
  say(p.recompute != RecomputeKind::none, fmt::format("recompute {}", p.recompute));
  return words;
}

SmallestLayout smallest_layout(const Recipe& recipe, const std::function<std::optional<bool>(const Recipe&)>& differs) {
  SmallestLayout smallest{recipe, {}};
  for (const Removal& removal : kRemovals) {
    Recipe less = smallest.recipe;
    removal.remove(less.parallel);
    fit_teacher(less.parallel);
    if (layout_words(less) == layout_words(smallest.recipe) &&
        less.parallel.pipeline_layout == smallest.recipe.parallel.pipeline_layout)
      continue;
    smallest.tried.push_back({removal.name, layout_words(less), differs(less)});
    if (smallest.tried.back().differs == true) smallest.recipe = less;
  }
  return smallest;
}

}  // namespace weft
