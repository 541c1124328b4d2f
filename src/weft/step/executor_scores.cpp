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
      input.load(b);
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

}  // namespace

// The losses that the objective asks for. In a dry run, one micro-batch sends what each of them does.
void Executor::score_batch(const StepInput& input) {
  WEFT_CHECK(
      is_dry() || (step_.scores_first == input.objective.scores_first() &&
                   step_.frozen.size() == input.objective.num_frozen() && step_.num_sums == input.objective.num_sums()),
      "a step that was planned for another objective");
  const int64_t all = step_.order.num_micro_batches;
  std::vector<std::vector<double>> counted(static_cast<size_t>(all));
  const auto losses_of = [&](const Model& model, ParamStore& params) {
    Losses losses(static_cast<size_t>(all));
    const Traffic before = is_dry() ? *traffic_ : Traffic();
    for (int64_t i = 0; i < (is_dry() ? 1 : all); ++i) {
      const Tensor nll = score(model, params, [&](MicroBatch& b) {
        b.index = i;
        input.load(b);
        if (!is_dry() && step_.num_sums > 0) counted[size_t(i)] = values_of(b.weights);
      });
      if (is_dry()) continue;
      losses[size_t(i)].resize(size_t(nll.rows()));
      for_each_value(*evaluation_.memory(), nll,
                     [&](int64_t token, int64_t, double x) { losses[size_t(i)][size_t(token)] = x; });
    }
    if (is_dry()) traffic_->add(traffic_->since(before), all - 1);
    return losses;
  };
  if (step_.scores_first) own_losses_ = losses_of(model_, state_.params);
  frozen_losses_.clear();
  for (FrozenModel& other : state_.frozen) frozen_losses_.push_back(losses_of(other.model, other.params));
  if (step_.num_sums > 0) sum_sequences(input, counted);
}

// Only the stage with the head has losses. Ranks of tp have the same; of dp, other sequences; of cp, other targets.
void Executor::sum_sequences(const StepInput& input, const std::vector<std::vector<double>>& counted) {
  const int64_t here = step_.micro_batch_size * step_.num_sums;
  const int64_t size = here * step_.order.global_micro_batches();
  bool has_head = false;
  for (int c = 0; c < model_.num_chunks(); ++c) has_head = has_head || model_.has_head(c);
  sums_.assign(size_t(is_dry() ? 0 : size), 0);
  for (int64_t i = 0; i < step_.order.num_micro_batches && has_head && !is_dry(); ++i)
    input.objective.sum(scores_of(i, input), counted[size_t(i)],
                        std::span(sums_).subspan(size_t(step_.order.global_of(i) * here), size_t(here)));
  const Tensor all{is_dry() ? nullptr : sums_.data(), DType::f64, {size}};
  mesh_.dense.all->all_reduce(all).wait();
  mesh_.pp->all_reduce(all).wait();
}

Objective::Scores Executor::scores_of(int64_t micro_batch, const StepInput& input) const {
  Objective::Scores scores{.own = {},
                           .frozen = {},
                           .batch = input.batch,
                           .first_sequence = step_.order.global_of(micro_batch) * step_.micro_batch_size,
                           .sequences = step_.sequences()};
  if (step_.scores_first) scores.own = own_losses_[size_t(micro_batch)];
  for (const Losses& losses : frozen_losses_) scores.frozen.emplace_back(losses[size_t(micro_batch)]);
  return scores;
}

void Executor::load(MicroBatch& b, const StepInput& input) {
  input.load(b);
  if (is_dry() || !input.objective.weighs()) return;
  std::vector<double> weights = values_of(b.weights);
  input.objective.weigh(scores_of(b.index, input), sums_, weights);
  if (b.weights.dtype == DType::f64)
    std::copy(weights.begin(), weights.end(), b.weights.as<double>());
  else
    std::copy(weights.begin(), weights.end(), b.weights.as<float>());
}

}  // namespace weft
