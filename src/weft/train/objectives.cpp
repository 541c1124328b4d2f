#include "weft/train/objectives.h"

#include <cmath>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/plan/teacher.h"
#include "weft/step/distill.h"
#include "weft/step/dpo.h"
#include "weft/step/grpo.h"
#include "weft/step/kto.h"
#include "weft/step/ppo.h"
#include "weft/step/reward.h"
#include "weft/train/first_weights.h"
#include "weft/train/returns.h"

namespace weft {

namespace {

std::unique_ptr<const Objective> dpo_of(const Recipe& r) {
  const auto& o = r.objective;
  return std::make_unique<Dpo>(
      Dpo::Spec{.loss = o.loss_type == PreferenceLoss::ipo ? Dpo::Loss::ipo : Dpo::Loss::sigmoid,
                .beta = o.beta,
                .label_smoothing = o.label_smoothing,
                .average_logps = o.average_logps,
                .num_pairs = r.train.global_batch_size});
}

// By batch and sequence of it, the row.
auto row_by_place(const Recipe& r, const RowOrder& order, const BatchPlace& place) {
  return [&order, place, of_batch = r.train.global_batch_size](int64_t batch, int64_t sequence) {
    return order.row_of(place.sample_of(batch, of_batch) + sequence);
  };
}

std::unique_ptr<const Objective> grpo_of(const Recipe& r, const RowOrder& order, const BatchPlace& place) {
  const auto& o = r.objective;
  using Normalisation = Grpo::Normalisation;
  const Grpo::Spec spec{.clip_eps_low = o.clip_eps_low,
                        .clip_eps_high = o.clip_eps_high,
                        .kl_beta = o.kl_beta,
                        .normalisation = o.normalisation == LossNormalisation::token      ? Normalisation::token
                                         : o.normalisation == LossNormalisation::sequence ? Normalisation::sequence
                                                                                          : Normalisation::constant,
                        .max_completion_length = o.max_completion_length,
                        .num_sequences = r.train.global_batch_size};
  return std::make_unique<Grpo>(spec, [&order, advantages = advantages_of(order.id_rows(), o),
                                       row_at = row_by_place(r, order, place)](int64_t batch, int64_t sequence) {
    const int64_t row = row_at(batch, sequence);
    return Grpo::Sampled{.advantage = advantages[size_t(row)],
                         .old_logps = order.id_rows().token_numbers(row),
                         .first_target = int64_t(order.id_rows().prompt(row).size()) - 1};
  });
}

std::unique_ptr<const Objective> kto_of(const Recipe& r, const RowOrder& order, const BatchPlace& place) {
  const auto& o = r.objective;
  return std::make_unique<Kto>(Kto::Spec{.beta = o.beta,
                                         .desirable_weight = o.desirable_weight,
                                         .undesirable_weight = o.undesirable_weight,
                                         .num_examples = r.train.global_batch_size},
                               [&order, row_at = row_by_place(r, order, place)](int64_t batch, int64_t sequence) {
                                 return order.id_rows().number(row_at(batch, sequence)) != 0;
                               });
}

std::unique_ptr<const Objective> ppo_of(const Recipe& r, const RowOrder& order, const BatchPlace& place) {
  const auto& o = r.objective;
  const Ppo::Spec spec{.clip_eps_low = o.clip_eps_low,
                       .clip_eps_high = o.clip_eps_high,
                       .value_clip = o.value_clip,
                       .value_coef = o.value_coef};
  return std::make_unique<Ppo>(spec, [&order, returns = std::make_shared<BatchReturns>(order, r, place),
                                      row_at = row_by_place(r, order, place)](int64_t batch, int64_t sequence) {
    const int64_t row = row_at(batch, sequence);
    const BatchReturns::OfSequence of = returns->of(batch, sequence);
    return Ppo::Sampled{.advantages = of.advantages,
                        .returns = of.returns,
                        .old_logps = order.id_rows().token_numbers(row, 0),
                        .old_values = order.id_rows().token_numbers(row, 2),
                        .first_target = int64_t(order.id_rows().prompt(row).size()) - 1};
  });
}

}  // namespace

std::unique_ptr<const Objective> objective_of(const Recipe& r, const TrainingSamples& samples,
                                              const BatchPlace& place) {
  if (r.train.objective == ObjectiveKind::cross_entropy) return std::make_unique<NextToken>();
  if (r.train.objective == ObjectiveKind::distill) return std::make_unique<Distill>(teacher_loss_of(r));
  if (r.train.objective == ObjectiveKind::dpo) return dpo_of(r);
  if (r.train.objective == ObjectiveKind::reward)
    return std::make_unique<Reward>(Reward::Spec{.num_pairs = r.train.global_batch_size});
  WEFT_CHECK(samples.rows() != nullptr, "an objective over rows needs rows");
  const RowOrder& rows = *samples.rows();
  if (r.train.objective == ObjectiveKind::ppo) return ppo_of(r, rows, place);
  return r.train.objective == ObjectiveKind::kto ? kto_of(r, rows, place) : grpo_of(r, rows, place);
}

std::vector<double> advantages_of(const IdRows& rows, const Recipe::Objective& o) {
  std::vector<double> all;
  const auto n = double(o.group_size);
  for (int64_t first = 0; first + o.group_size <= rows.size(); first += o.group_size) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < o.group_size; ++i) mean += rows.number(first + i) / n;
    for (int64_t i = 0; i < o.group_size; ++i) squares += std::pow(rows.number(first + i) - mean, 2);
    const double deviation = std::sqrt(squares / (o.advantage_std == AdvantageStd::sample ? n - 1 : n));
    const double divided_by = o.advantage_std == AdvantageStd::none ? 1 : deviation + o.advantage_eps;
    for (int64_t i = 0; i < o.group_size; ++i) all.push_back((rows.number(first + i) - mean) / divided_by);
  }
  return all;
}

namespace {

std::vector<std::string> begin_teacher(const Recipe& recipe, RankRun& rank, int num_threads) {
  FrozenModel& teacher = *rank.state.teacher;
  const std::string& path = recipe.objective.teacher;
  std::vector<std::string> notes;
  if (rank.plan.config.teacher->has_folder) {
    for (const std::string& note : load_hf_weights(path, teacher.model.spec(), teacher.params, num_threads))
      notes.push_back("of the teacher, " + note);
  } else {
    init_weights(teacher.params, uint64_t(recipe.train.seed) + 1, num_threads);
  }
  teacher.params.masters_changed(rank.backend);
  return notes;
}

}  // namespace

Recipe recipe_of_reference(const Recipe& recipe) {
  Recipe r = recipe;
  if (recipe.objective.reference.empty()) return r;
  if (recipe.adapter.kind != AdapterKind::none) {
    r.adapter.path = recipe.objective.reference;
  } else {
    r.model.path = recipe.objective.reference;
    r.model.init = InitChoice::pretrained;
  }
  return r;
}

std::vector<std::string> start_frozen(const Recipe& recipe, RankRun& rank, int num_threads) {
  for (FrozenModel& other : rank.state.frozen)
    begin_weights(recipe_of_reference(recipe), rank.plan.model, other.params, rank.backend, num_threads);
  return rank.state.teacher ? begin_teacher(recipe, rank, num_threads) : std::vector<std::string>();
}

}  // namespace weft
