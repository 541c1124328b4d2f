#include "weft/step/text_passes.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"
#include "weft/step/text_groups.h"

namespace weft {
namespace {

// A longer portion gains little: its products have rows enough.
constexpr int64_t kLargestPortion = 256;

bool passes_together(const StepSpec& step) {
  return step.mesh.dp > 1 && (step.mesh.ep > 1 || step.order.zero_stage == 3);
}

// A pass may be of one token, and there are no gradients; ranks of cp look back at what each of them keeps, however
// they share sequences.
TransformerPlan plan_of(const StepSpec& step) {
  TransformerPlan plan = step.model;
  plan.layers.stream = Spmd::Invariant;
  if (step.mesh.cp > 1) plan.layers.context = {.keys = ContextPlan::Keys::ring};
  plan.layers.capacity = {};
  plan.layers.keep_activations = true;
  plan.recompute_blocks = false;
  plan.recompute.clear();
  return plan;
}

RankOf cp_of(const StepSpec& step) { return step.sequences().ranks; }

// On each rank of cp, the most that one of them needs.
int64_t pages_needed(const StepSpec& step) {
  const RankOf cp = cp_of(step);
  CacheBooks books(cp, KvPages::pages_for(step.seq_length), 1);
  books.pass_over(0, 0, step.seq_length);
  int64_t most = 0;
  for (int64_t rank = 0; rank < cp.size; ++rank) most = std::max(most, KvPages::pages_for(books.kept(0, rank)));
  return step.writes * most + (passes_together(step) ? 1 : 0);
}

}  // namespace

TextPasses::TextPasses(const ModelSpec& model, const StepSpec& step, const On& on)
    : step_(step),
      on_(on),
      params_(step.precision, step.order, on.mesh, WeightUse::frozen),
      model_(params_, model, plan_of(step)),
      pages_(pages_needed(step)),
      books_(cp_of(step), pages_, step.writes + 1) {
  params_.borrow(on.weights);
  model_.allocate_constants(on.memory, step.precision);
  caches_ = model_.make_caches(on.memory, step.precision, pages_ * KvPages::kRows);
  mark_ = on.memory.used();
  if (on.memory.counts_only()) return;
  links_.emplace(model_, step, on.mesh, nullptr);
  staging_.emplace(on.memory.memory(), std::max(portion_of(step.seq_length), step.writes), on.mesh.poller());
}

bool TextPasses::pass_together() const { return passes_together(step_); }

int64_t TextPasses::portion_of(int64_t tokens) const {
  const bool one_by_one = step_.mesh.cp > 1 || (step_.mesh.ep > 1 && step_.mesh.dp > 1);
  return one_by_one ? 1 : int64_t(std::bit_floor(uint64_t(std::min(tokens, kLargestPortion))));
}

Tensor TextPasses::run(const DecodingRows& rows) {
  const auto n = int64_t(rows.ids.size());
  WEFT_CHECK(texts_of_pass(n, step_.writes) == n, "a pass of {} tokens, which was not planned", n);
  return run_decoding({.backend = on_.backend,
                       .mesh = on_.mesh,
                       .step = step_,
                       .model = model_,
                       .params = params_,
                       .caches = caches_,
                       .links = links_ ? &*links_ : nullptr,
                       .staging = staging_ ? &*staging_ : nullptr},
                      rows, on_.memory, mark_);
}

// Portions of each length, which look back at as much as can be there; and a token of one text or more.
void TextPasses::run_dry() {
  const int64_t all = step_.seq_length;
  for (int64_t n = portion_of(all); n > 1; n /= 2) {
    CacheBooks books(cp_of(step_), pages_, 1);
    books.pass_over(0, 0, all - n);
    const std::vector<int32_t> ids(size_t(n), 0);
    run(books.next(std::vector<CacheBooks::Next>{{.text = 0, .position = all - n, .ids = ids}}));
  }
  const std::vector<CachedRun> seen{{0, std::min(all, pages_ * KvPages::kRows), 0}};
  for (const int64_t n : planned_numbers_of_texts(step_.writes)) run(any_step(size_t(n), seen, cp_of(step_)));
}

}  // namespace weft
