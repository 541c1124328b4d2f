#include "weft/verify/run_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/optim/optimizer.h"
#include "weft/sharding/state_values.h"

namespace weft {
namespace {

// Tensors of pure rounding noise are judged relative to the other tensors' size.
constexpr double kSmallestGradient = 1e-6;  // of the norm of all gradients
constexpr double kSmallestState = 1e-6;     // of the largest of that name of all weights
constexpr double kSmallestWeight = 1e-6;

// A tensor like a weight, at a moment: which one ParamStore has of what it keeps, and the factor on its elements.
struct Kept {
  Quantity quantity;
  std::string name;
  size_t state = 0;  // of optimizer state, which
  double scale = 1;
  bool are_codes(const ParamStore::Stored& block) const {
    return quantity == Quantity::states && !block.blocks.empty();
  }
  const Tensor& of(const ParamStore::Stored& block) const {
    return quantity == Quantity::gradients ? block.grad
           : quantity == Quantity::weights ? block.master
                                           : block.states[state];
  }
};

// Gradients before the update, of weights that learn; then optimizer state and weights.
std::vector<Kept> kept_tensors(const TrialMoment& now, const Param& p) {
  const std::string& name = p.spec().name;
  if (!now.updated && !p.learns()) return {};
  if (!now.updated) return {{.quantity = Quantity::gradients, .name = name, .scale = 1 / now.loss_scale}};
  std::vector<Kept> all;
  const std::vector<std::string> states = now.optimizer.state_names(p.spec());
  for (size_t i = 0; i < states.size(); ++i)
    all.push_back({.quantity = Quantity::states, .name = states[i] + " of " + name, .state = i});
  all.push_back({.quantity = Quantity::weights, .name = name});
  return all;
}

// Calls f(index into the whole tensor, value) for what this rank keeps of it.
template <class F>
void for_each_kept(const TrialMoment& now, const Param& p, const Kept& kept, const F& f) {
  const int64_t width = width_of(p.spec());
  for (const ParamStore::Stored& block : now.params.stored(p)) {
    const auto see = [&](int64_t row, int64_t col, double x) {
      f(size_t((block.rows.first + row) * width + block.cols.first + col), x * kept.scale);
    };
    if (kept.are_codes(block))
      for_each_value(now.params.memory(), kept.of(block), block.blocks[kept.state], see);
    else
      for_each_value(now.params.memory(), kept.of(block), see);
  }
}

// The tensors of a step (of a record, or their distances) of one quantity.
template <class Step>
auto& tensors_of(Step& step, Quantity quantity) {
  return quantity == Quantity::gradients ? step.gradients : quantity == Quantity::weights ? step.weights : step.states;
}

double apart(double a, double b) {
  const double d = a == b ? 0 : std::abs(a - b);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

double relative(double distance, double size) { return distance == 0 ? 0 : distance / size; }

// Compares a run's ranks, one at a time.
class Comparison {
 public:
  Comparison(const RunRecord& record, int64_t steps) : record_(record), distances_(size_t(steps)) {}

  void see(const TrialMoment& now) {
    const std::lock_guard lock(mutex_);
    const RunRecord::Step& there = record_.steps[size_t(now.step)];
    Distances::Step& here = distances_.steps()[size_t(now.step)];
    if (!now.updated) {
      farther(here.loss, relative(apart(now.loss, there.loss), std::abs(there.loss)));
      farther(here.grad_norm, relative(apart(now.grad_norm, there.grad_norm), there.grad_norm));
    }
    for (const Param* p : now.params.params(ParamStore::Copies::with)) {
      if (p->spec().in_codes()) continue;
      for (const Kept& kept : kept_tensors(now, *p)) {
        const WholeTensor& whole = tensors_of(there, kept.quantity).at(kept.name);
        farther(tensors_of(here, kept.quantity)[kept.name], farthest(now, *p, kept, whole));
      }
    }
  }

  Distances take() {
    for (const std::string& name : record_.order) {
      const std::vector<char>& seen = seen_[name];
      WEFT_CHECK(!seen.empty() && std::all_of(seen.begin(), seen.end(), [](char c) { return c != 0; }),
                 "the ranks together do not keep all of {}", name);
    }
    return std::move(distances_);
  }

 private:
  static void farther(double& most, double x) { most = std::max(most, x); }

  double farthest(const TrialMoment& now, const Param& p, const Kept& kept, const WholeTensor& whole) {
    double far = 0;
    std::vector<char>& seen = seen_[p.spec().name];
    seen.resize(whole.values.size());
    for_each_kept(now, p, kept, [&](size_t i, double x) {
      farther(far, relative(apart(x, whole.values[i]), whole.size_of(i)));
      seen[i] = 1;
    });
    return far;
  }

  const RunRecord& record_;
  Distances distances_;
  std::map<std::string, std::vector<char>> seen_;  // of the elements: has a rank had it
  std::mutex mutex_;
};

WholeTensor whole_of(const TrialMoment& now, const Param& p, const Kept& kept) {
  WholeTensor whole;
  whole.values.resize(size_t(p.spec().shape.elements()));
  for_each_kept(now, p, kept, [&](size_t i, double x) {
    whole.values[i] = x;
    whole.largest = std::max(whole.largest, std::abs(x));
  });
  return whole;
}

// A bias of one number is a sum that may cancel, without others to be small beside: it is judged beside the weight of
// its layer, which is a sum of the same terms, each times an input.
void beside_weights(std::map<std::string, WholeTensor>& all) {
  constexpr std::string_view kBias = ".bias";
  for (auto& [name, whole] : all) {
    if (whole.values.size() != 1 || !name.ends_with(kBias)) continue;
    const auto weight = all.find(name.substr(0, name.size() - kBias.size()) + ".weight");
    if (weight != all.end()) whole.size = std::max(whole.size, weight->second.size);
  }
}

void find_sizes(RunRecord::Step& step) {
  const auto at_least = [](std::map<std::string, WholeTensor>& all, const auto& least) {
    for (auto& [name, whole] : all) whole.size = std::max(whole.largest, least(name));
  };
  std::map<std::string, double> largest;  // of the states of a name
  const auto kind = [](const std::string& name) { return name.substr(0, name.find(" of ")); };
  for (const auto& [name, whole] : step.states) largest[kind(name)] = std::max(largest[kind(name)], whole.largest);
  at_least(step.gradients, [&](const std::string&) { return kSmallestGradient * step.grad_norm; });
  at_least(step.states, [&](const std::string& name) { return kSmallestState * largest[kind(name)]; });
  at_least(step.weights, [](const std::string&) { return kSmallestWeight; });
  for (auto* all : {&step.gradients, &step.states}) beside_weights(*all);
}

// A gradient that is off by a part r of the tensor's largest moves AdamW's update, lr m / (sqrt(v) + eps), by about
// r lr largest / (sqrt(v) + eps): where an element's own gradients are small, by far more than the part r of any update
// of the tensor. A weight that begins at zero is made of its updates alone, so that relative to its largest element one
// with small gradients is off by up to largest / eps times as much as the gradients. Relative to its reach, it is off
// by as much as they are, and the same bounds hold. One that begins larger is held to its own size.
void find_reaches(RunRecord& record, const Recipe::Optimizer& o) {
  std::map<std::string, double> largest;  // of a weight's gradients so far, as they were clipped
  const RunRecord::Step* before = nullptr;
  for (size_t s = 0; s < record.steps.size(); ++s) {
    RunRecord::Step& step = record.steps[s];
    const double clip = clip_scale(step.grad_norm, o.clip_grad);
    const double seen = 1 - std::pow(o.adam_beta2, double(s + 1));  // of the second moments, which begin at zero
    for (auto& [name, weight] : step.weights) {
      const auto squares = step.states.find("exp_avg_sq of " + name);
      if (squares == step.states.end() || record.first_weights.at(name).largest > 0) continue;
      double& most = largest[name];
      most = std::max(most, clip * step.gradients.at(name).size);
      weight.reach = before != nullptr ? before->weights.at(name).reach : std::vector<double>(weight.values.size());
      for (size_t i = 0; i < weight.reach.size(); ++i)
        weight.reach[i] += o.lr * most / (std::sqrt(squares->second.values[i] / seen) + o.adam_eps);
    }
    before = &step;
  }
}

}  // namespace

std::string name_of(Quantity quantity) {
  constexpr const char* kNames[] = {"loss", "gradients", "gradient norm", "optimizer state", "weights"};
  return kNames[size_t(quantity)];
}

RunRecord record_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks) {
  RunRecord record;
  record.steps.resize(size_t(trial.steps));
  TrialHooks watched = hooks;
  watched.see = [&](const TrialMoment& now) {
    if (hooks.see) hooks.see(now);
    RunRecord::Step& step = record.steps[size_t(now.step)];
    step.loss = now.loss;
    step.grad_norm = now.grad_norm;
    for (const Param* p : now.params.params()) {
      const std::string& name = p->spec().name;
      if (p->spec().in_codes()) continue;  // what products make of it is seen in all that follows
      if (now.step == 0 && !now.updated) {
        record.order.push_back(name);
        if (p->learns()) record.gradient_order.push_back(name);
        record.kinds[name] = {p->spec().decays(), p->spec().linear, p->learns()};
        record.first_weights[name] = whole_of(now, *p, {.quantity = Quantity::weights, .name = name});
      }
      for (const Kept& kept : kept_tensors(now, *p)) {
        if (now.step == 0 && kept.quantity == Quantity::states) record.state_order.push_back(kept.name);
        tensors_of(step, kept.quantity)[kept.name] = whole_of(now, *p, kept);
      }
    }
  };
  WEFT_CHECK(mesh_sizes_of(trial.recipe).world() == 1, "a record of {} ranks", mesh_sizes_of(trial.recipe).world());
  run_trial(trial, machine, watched);
  for (RunRecord::Step& step : record.steps) find_sizes(step);
  find_reaches(record, trial.recipe.optimizer);
  return record;
}

double Distances::at(int64_t step, Quantity quantity, const std::string& tensor) const {
  const Step& s = steps_[size_t(step)];
  if (quantity == Quantity::loss) return s.loss;
  if (quantity == Quantity::gradient_norm) return s.grad_norm;
  return tensors_of(s, quantity).at(tensor);
}

Distances compare_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks, const RunRecord& record) {
  Comparison comparison(record, trial.steps);
  TrialHooks watched = hooks;
  watched.see = [&](const TrialMoment& now) {
    if (hooks.see) hooks.see(now);
    comparison.see(now);
  };
  run_trial(trial, machine, watched);
  return comparison.take();
}

std::string to_string(const Difference& d) {
  if (d.quantity == Quantity::gradients) return "the gradient of " + d.tensor;
  if (d.quantity == Quantity::states) return "the optimizer's " + d.tensor;
  return "the " + (d.quantity == Quantity::weights ? d.tensor : name_of(d.quantity));
}

std::vector<std::string> Distances::names(int64_t step, Quantity quantity) const {
  if (!of_tensors(quantity)) return {""};
  std::vector<std::string> names;
  for (const auto& [name, distance] : tensors_of(steps_[size_t(step)], quantity)) names.push_back(name);
  return names;
}

std::optional<Difference> first_difference(const Distances& distances, const RunRecord& record,
                                           const AllowedDistance& allowed) {
  const std::vector<Difference> all = differences(distances, record, allowed);
  return all.empty() ? std::nullopt : std::optional(all[0]);
}

std::vector<Difference> differences(const Distances& distances, const RunRecord& record,
                                    const AllowedDistance& allowed) {
  std::vector<Difference> all;
  for (size_t s = 0; s < distances.steps().size(); ++s) {
    for (const Quantity q : kQuantities) {
      std::vector<std::string> names = of_tensors(q) ? record.names(q) : std::vector<std::string>{""};
      if (q == Quantity::gradients) std::reverse(names.begin(), names.end());
      for (const std::string& name : names) {
        const double distance = distances.at(int64_t(s), q, name), most = allowed(int64_t(s), q, name);
        if (!(distance <= most)) all.push_back({int64_t(s), q, name, distance, most});
      }
    }
  }
  return all;
}

Difference worst_of(const Distances& distances, Quantity q, const AllowedDistance& allowed) {
  Difference worst{.step = 0, .quantity = q, .tensor = "", .distance = 0, .allowed = 0};
  double worst_off = -1;
  for (size_t s = 0; s < distances.steps().size(); ++s) {
    for (const std::string& name : distances.names(int64_t(s), q)) {
      const double distance = distances.at(int64_t(s), q, name), most = allowed(int64_t(s), q, name);
      const double off = most > 0 ? distance / most : distance;
      if (off > worst_off) worst = {int64_t(s), q, name, distance, most};
      worst_off = std::max(worst_off, off);
    }
  }
  return worst;
}

}  // namespace weft
