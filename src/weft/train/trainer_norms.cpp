// What a run records of every tensor: norms of gradients and weights, and how much of them a step changes.
#include <cmath>
#include <fstream>
#include <string_view>

#include "weft/base/error.h"
#include "weft/models/hf_names.h"
#include "weft/train/trainer.h"

namespace weft {

// Sums over all slices and stages of each tensor; the same on every rank. Collective.
std::map<std::string, std::vector<double>> Trainer::wait_sum_tensors(const std::vector<PartSums>& parts,
                                                                     size_t count) const {
  const std::vector<HfTensor> tensors = trained_tensors(rank_.plan.model);
  std::multimap<std::string_view, const PartSums*> of_weight;
  for (const PartSums& part : parts) of_weight.emplace(part.param->spec().name, &part);
  std::vector<double> sums(tensors.size() * count);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HfTensor& t = tensors[i];
    const auto [first, end] = of_weight.equal_range(t.param);
    for (auto at = first; at != end; ++at) {
      const PartSums& part = *at->second;
      if (part.first_row < t.first_row || part.first_row >= t.first_row + t.rows) continue;
      for (size_t s = 0; s < count; ++s) sums[i * count + s] += part.sums[s];
    }
  }
  rank_.mesh.pp->all_reduce({sums.data(), DType::f64, {int64_t(sums.size())}}).wait();
  std::map<std::string, std::vector<double>> of_tensor;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<double>& of = of_tensor[tensors[i].name];
    of.resize(count);
    for (size_t s = 0; s < count; ++s) of[s] += sums[i * count + s];
  }
  return of_tensor;
}

// Where a step ran twice (a crash, a resume), the later line counts.
void Trainer::append_record(const std::string& name, const nlohmann::json& line) {
  records_->attempt(name, [&] {
    std::ofstream out(std::filesystem::path(recipe_.run.dir) / name, std::ios::app);
    out << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    if (!out) throw FileError(fmt::format("{}/{}: cannot be written; is the disk full?", recipe_.run.dir, name));
  });
}

// One line a step in grad_norms.jsonl.
void Trainer::log_grad_norms(const TrainingStep::Result& step) {
  std::vector<PartSums> parts;
  for (const GradNorm::Entry& e : rank_.state.norm->wait_measure_parts(rank_.backend))
    parts.push_back({e.param, e.first_row, e.rows, {e.squares}});
  const auto sums = wait_sum_tensors(parts, 1);
  if (!leads()) return;
  std::map<std::string, double> norms;
  for (const auto& [name, sum] : sums) norms[name] = std::sqrt(sum[0]) / step.loss_scale;
  append_record("grad_norms.jsonl", {{"step", step_ + 1}, {"grad_norm", norms}});
  if (const auto found = gradient_rule_.look(step_ + 1, norms)) tell_of_gradient(*found);
}

void Trainer::tell_of_gradient(const GradientRule::Found& f) {
  const std::string others = f.tensors.size() > 1 ? fmt::format(" (the worst of {} tensors)", f.tensors.size()) : "";
  const std::string reason = fmt::format(
      "the gradient of {} has all but vanished since step {}: its norm is {:.3g}, {:.3g} of {}, below {}{}: {}",
      f.tensor, f.from_step, f.norm, f.fraction(),
      f.beside_others ? "that of the same tensor in most other layers" : "what it was beside the others at its best",
      GradientRule::kLeast, others,
      "it learns no more; look at what saturates or cuts it off (activations, gates, experts without tokens), at its "
      "initial weights, and at optimizer.lr");
  records_->event("vanished_gradient", {{"step", step_ + 1},
                                        {"tensor", f.tensor},
                                        {"grad_norm", f.norm},
                                        {"usual", f.usual},
                                        {"of", f.beside_others ? "other layers" : "its own"},
                                        {"limit", GradientRule::kLeast},
                                        {"since_step", f.from_step},
                                        {"tensors", f.tensors.size()},
                                        {"reason", reason}});
  records_->note(fmt::format("WARNING: step {}: {}", step_ + 1, reason));
}

// Whether the step to come is measured. The first of each start is: the plan counts the workspace of what measures, and
// what was used is compared with the plan after each update.
bool Trainer::measures_weights() const {
  const int64_t interval = recipe_.train.log_weight_norms;
  return interval > 0 && (!has_measured_weights_ || (step_ + 1) % interval == 0);
}

// Adds the step that is just done to weight_norms.jsonl.
void Trainer::log_weight_norms(const TrainingStep::Result& step) {
  has_measured_weights_ = true;
  const auto sums = wait_sum_tensors(step.weights, WeightNorms::kSums);
  if (!leads()) return;
  std::map<std::string, TensorChange> tensors;
  nlohmann::json norms, ratios;
  for (const auto& [name, sum] : sums) {
    const TensorChange& t = tensors[name] = {.before = std::sqrt(sum[WeightNorms::before]),
                                             .after = std::sqrt(sum[WeightNorms::after]),
                                             .change = std::sqrt(sum[WeightNorms::change])};
    norms[name] = t.after;
    ratios[name] = t.ratio();  // null where it was 0
  }
  append_record("weight_norms.jsonl", {{"step", step_}, {"weight_norm", norms}, {"update_ratio", ratios}});
  tell_of_weights(tensors);
}

void Trainer::tell_of_weights(const std::map<std::string, TensorChange>& tensors) {
  for (const WeightRule::Found& f : weight_rule_.look(step_, tensors)) {
    const bool of_update = f.kind == WeightRule::Found::Kind::update;
    const std::string others = f.tensors.size() > 1 ? fmt::format(" (the worst of {} tensors)", f.tensors.size()) : "";
    const std::string reason =
        of_update ? fmt::format(
                        "the update changed {} by {:.3g} of its norm, above {}{}: optimizer.lr is too high for "
                        "it, or its gradient exploded; 0.001 is usual",
                        f.tensor, f.value, f.limit, others)
                  : fmt::format(
                        "the norm of {} is {:.3g} times that of step {}, above {} within {} steps{}: weights "
                        "grow without bound where optimizer.lr is too high or weight_decay too low",
                        f.tensor, f.value, f.from_step, f.limit, 2 * WeightRule::kWindow, others);
    records_->event(of_update ? "large_update" : "weight_growth", {{"step", step_},
                                                                   {"tensor", f.tensor},
                                                                   {of_update ? "update_ratio" : "growth", f.value},
                                                                   {"limit", f.limit},
                                                                   {"weight_norm", f.norm},
                                                                   {"since_step", f.from_step},
                                                                   {"tensors", f.tensors.size()},
                                                                   {"reason", reason}});
    records_->note(fmt::format("WARNING: step {}: {}", step_, reason));
  }
}

}  // namespace weft
