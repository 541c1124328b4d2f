// The forward-only passes at the beginning of a step, and the weights that its objective makes of them.
#include <algorithm>

#include "weft/device/tensor_values.h"
#include "weft/step/executor.h"

namespace weft {

// How many tokens of the whole batch each expert has: with the weights and the dropout of the passes that follow.
void Executor::count_experts(const StepInput& input) {
  const int64_t all = step_.order.num_micro_batches;
  const Traffic before = is_dry() ? *traffic_ : Traffic();
  const ForwardOnly pass{.model = model_,
                         .params = state_.params,
                         .step = step_,
                         .backend = *backend_,
                         .mesh = mesh_,
                         .staging = staging_,
                         .links = &links_,
                         .dropout_key = input.dropout_key,
                         .counts_experts = true};
  for (int64_t i = 0; i < (is_dry() ? 1 : all); ++i) {
    const LoadMicroBatch load = [&](MicroBatch& b) {
      b.index = i;
      load_tokens(b, input);
    };
    pass.score(load, evaluation_);
  }
  if (is_dry()) traffic_->add(traffic_->since(before), all - 1);
  const ExpertsSpec& e = state_.model.spec().experts;
  state_.model.routers()->wait_sum_whole(mesh_, double(e.count) / double(e.chosen * step_.global_tokens()));
}

namespace {

// The values of a vector of numbers of dtype `stat`, which the host reaches.
std::vector<double> values_of(const Tensor& x) {
  std::vector<double> values(size_t(x.rows()));
  if (x.dtype == DType::f64)
    std::copy_n(x.as<double>(), x.rows(), values.begin());
  else
    std::copy_n(x.as<float>(), x.rows(), values.begin());
  return values;
}

void write_values(const std::vector<double>& values, const Tensor& x) {
  if (x.dtype == DType::f64)
    std::copy(values.begin(), values.end(), x.as<double>());
  else
    std::copy(values.begin(), values.end(), x.as<float>());
}

}  // namespace

void Executor::score_batch(const StepInput& input) {
  const Objective& objective = input.objective;
  WEFT_CHECK(
      is_dry() ||
          (step_.scores_first == objective.scores_first() && step_.num_frozen() == objective.num_frozen() &&
           step_.num_sums == objective.num_sums() && step_.scores_others == objective.scores_others() &&
           step_.predicts_values == objective.weighs_values() && step_.distillation() == objective.distillation()),
      "a step that was planned for another objective");
  sums_.assign(is_dry() ? 0 : size_t(num_sums_of_batch()), 0);
  scored_ = score_with(input.load, input.reference);
  if (step_.num_sums == 0) return;
  add_sums(scored_, false, input);
  if (step_.scores_others)
    add_sums(score_with(is_dry() ? input.load : *input.others, input.reference_of_others), true, input);
  wait_sum_sequences();
}

Objective::Sums Executor::measure(const StepInput& input) {
  WEFT_CHECK(!is_dry() && step_.num_sums > 0 && (!step_.scores_others || input.others != nullptr),
             "an objective that sums nothing of a batch, or the other sequences are missing");
  score_batch(input);
  return sums_;
}

// The losses that the objective asks for. In a dry run, one micro-batch sends what each of them does.
Executor::Scored Executor::score_with(const LoadMicroBatch& load, const ReadReference& reference) {
  const int64_t all = step_.order.num_micro_batches;
  Scored scored{.own = {}, .values = {}, .frozen = {}, .counted = Losses(static_cast<size_t>(all))};
  const auto numbers_of = [&](const Tensor& x, double factor) {
    std::vector<double> numbers(size_t(x.rows()));
    for_each_value(*evaluation_.memory(), x,
                   [&](int64_t token, int64_t, double value) { numbers[size_t(token)] = factor * value; });
    return numbers;
  };
  const auto losses_of = [&](const Scorer& scorer) {
    Losses losses(static_cast<size_t>(all));
    const Traffic before = is_dry() ? *traffic_ : Traffic();
    for (int64_t i = 0; i < (is_dry() ? 1 : all); ++i) {
      const LoadMicroBatch one = [&](MicroBatch& b) {
        b.index = i;
        load(b);
        if (!is_dry() && step_.num_sums > 0) scored.counted[size_t(i)] = values_of(b.weights);
      };
      const TokenLosses of = score(scorer, one);
      if (is_dry()) continue;
      losses[size_t(i)] = numbers_of(of.nll, 1);
      if (of.values) scored.values.push_back(numbers_of(of.values, -1));
    }
    if (is_dry()) traffic_->add(traffic_->since(before), all - 1);
    return losses;
  };
  if (step_.scores_first) scored.own = losses_of({model_, state_.params, mesh_});
  if (step_.scores_base) scored.frozen.push_back(losses_of({model_, state_.params, mesh_, false}));
  for (FrozenModel& other : state_.frozen)
    scored.frozen.push_back(losses_of({other.model, other.params, frozen_mesh_}));
  if (step_.stored_reference) scored.frozen.push_back(stored_losses(reference));
  return scored;
}

// As a frozen model here would have them: those of the stage with the head.
Executor::Losses Executor::stored_losses(const ReadReference& reference) const {
  Losses losses;
  if (is_dry()) return losses;
  WEFT_CHECK(reference, "a step beside stored losses of a reference, and none are given");
  for (int64_t i = 0; i < step_.order.num_micro_batches; ++i) {
    losses.emplace_back(size_t(step_.micro_batch_tokens()), 0.0);
    if (step_.has_head()) reference(i, losses.back());
  }
  return losses;
}

int64_t Executor::num_sums_of_batch() const {
  return step_.num_sums * step_.micro_batch_size * step_.order.global_micro_batches();
}

// Only the stage with the head has losses. Ranks of tp have the same; of dp, other sequences; of cp, other targets.
void Executor::add_sums(const Scored& scored, bool others, const StepInput& input) {
  bool has_head = false;
  for (int c = 0; c < model_.num_chunks(); ++c) has_head = has_head || model_.has_head(c);
  if (is_dry() || !has_head) return;
  const int64_t here = step_.micro_batch_size * step_.num_sums;
  for (int64_t i = 0; i < step_.order.num_micro_batches; ++i) {
    Objective::Scores scores = scores_of(scored, i, input);
    scores.others = others;
    input.objective.sum(scores, scored.counted[size_t(i)],
                        std::span(sums_).subspan(size_t(step_.order.global_of(i) * here), size_t(here)));
  }
}

void Executor::wait_sum_sequences() {
  const Tensor all{is_dry() ? nullptr : sums_.data(), DType::f64, {num_sums_of_batch()}};
  mesh_.dense.all->all_reduce(all).wait();
  mesh_.pp->all_reduce(all).wait();
}

Objective::Scores Executor::scores_of(const Scored& scored, int64_t micro_batch, const StepInput& input) const {
  Objective::Scores scores{.own = {},
                           .frozen = {},
                           .batch = input.batch,
                           .first_sequence = step_.order.global_of(micro_batch) * step_.micro_batch_size,
                           .sequences = step_.sequences()};
  if (step_.scores_first) scores.own = scored.own[size_t(micro_batch)];
  for (const Losses& losses : scored.frozen) scores.frozen.emplace_back(losses[size_t(micro_batch)]);
  if (step_.predicts_values) scores.values = scored.values[size_t(micro_batch)];
  return scores;
}

void Executor::load(MicroBatch& b, const StepInput& input) {
  load_tokens(b, input);
  if (is_dry() || !input.objective.weighs()) return;
  const Objective::Scores scores = scores_of(scored_, b.index, input);
  const std::vector<double> counted = values_of(b.weights);
  std::vector<double> weights = counted, of_values = step_.predicts_values ? counted : std::vector<double>();
  input.objective.weigh_both(scores, sums_, weights, of_values);
  write_values(weights, b.weights);
  if (step_.predicts_values) write_values(of_values, b.value_weights);
}

}  // namespace weft
