#include "weft/train/run_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/train/tensor_values.h"

namespace weft {
namespace {

// Tensors of nothing but rounding noise are judged by the size of what they are beside.
constexpr double kSmallestGradient = 1e-6;  // of the norm of all gradients
constexpr double kSmallestWeight = 1e-6;

int64_t width_of(const ParamSpec& p) { return p.shape.elements() / p.shape[0]; }

// Calls f(index into the whole weight, value) for what this rank keeps of the weight; of its gradient, until the
// update.
template <class F>
void for_each_kept(const TrialMoment& now, const Param& p, const F& f) {
  const int64_t width = width_of(p.spec());
  for (const ParamStore::Stored& block : now.params.stored(p)) {
    for_each_value(
        now.params.memory(), now.updated ? block.master : block.grad, [&](int64_t row, int64_t col, double x) {
          f(size_t((block.rows.first + row) * width + block.cols.first + col), now.updated ? x : x / now.loss_scale);
        });
  }
}

double apart(double a, double b) {
  const double d = a == b ? 0 : std::abs(a - b);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

double relative(double distance, double size) { return distance == 0 ? 0 : distance / size; }

// What comes of a run's ranks, one at a time.
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
      const std::string& name = p->spec().name;
      const WholeTensor& whole = now.updated ? there.weights.at(name) : there.gradients.at(name);
      const double least = now.updated ? kSmallestWeight : kSmallestGradient * there.grad_norm;
      const double far = farthest(now, *p, whole);
      farther(now.updated ? here.weights[name] : here.gradients[name], relative(far, std::max(whole.largest, least)));
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

  double farthest(const TrialMoment& now, const Param& p, const WholeTensor& whole) {
    double far = 0;
    std::vector<char>& seen = seen_[p.spec().name];
    seen.resize(whole.values.size());
    for_each_kept(now, p, [&](size_t i, double x) {
      farther(far, apart(x, whole.values[i]));
      seen[i] = 1;
    });
    return far;
  }

  const RunRecord& record_;
  Distances distances_;
  std::map<std::string, std::vector<char>> seen_;  // of the elements: has a rank had it
  std::mutex mutex_;
};

WholeTensor whole_of(const TrialMoment& now, const Param& p) {
  WholeTensor whole;
  whole.values.resize(size_t(p.spec().shape.elements()));
  for_each_kept(now, p, [&](size_t i, double x) {
    whole.values[i] = x;
    whole.largest = std::max(whole.largest, std::abs(x));
  });
  return whole;
}

const std::map<std::string, double>& tensors_of(const Distances::Step& step, Quantity quantity) {
  return quantity == Quantity::gradients ? step.gradients : step.weights;
}

}  // namespace

std::string name_of(Quantity quantity) {
  constexpr const char* kNames[] = {"loss", "gradients", "gradient norm", "weights"};
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
      if (now.step == 0 && !now.updated) record.order.push_back(p->spec().name);
      (now.updated ? step.weights : step.gradients)[p->spec().name] = whole_of(now, *p);
    }
  };
  WEFT_CHECK(mesh_sizes_of(trial.recipe).world() == 1, "a record of {} ranks", mesh_sizes_of(trial.recipe).world());
  run_trial(trial, machine, watched);
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
  return "the " + (d.quantity == Quantity::weights ? d.tensor : name_of(d.quantity));
}

std::optional<Difference> first_difference(const Distances& distances, const RunRecord& record,
                                           const Allowed& allowed) {
  for (size_t s = 0; s < distances.steps().size(); ++s) {
    for (const Quantity q : kQuantities) {
      std::vector<std::string> names = of_tensors(q) ? record.order : std::vector<std::string>{""};
      if (q == Quantity::gradients) std::reverse(names.begin(), names.end());
      for (const std::string& name : names) {
        const double distance = distances.at(int64_t(s), q, name), most = allowed(int64_t(s), q, name);
        if (!(distance <= most)) return Difference{int64_t(s), q, name, distance, most};
      }
    }
  }
  return {};
}

Difference worst_of(const Distances& distances, Quantity q, const Allowed& allowed) {
  Difference worst{.step = 0, .quantity = q, .tensor = "", .distance = 0, .allowed = 0};
  double worst_off = -1;
  for (size_t s = 0; s < distances.steps().size(); ++s) {
    std::vector<std::string> names;
    if (of_tensors(q))
      for (const auto& [name, distance] : tensors_of(distances.steps()[s], q)) names.push_back(name);
    else
      names.emplace_back();
    for (const std::string& name : names) {
      const double distance = distances.at(int64_t(s), q, name), most = allowed(int64_t(s), q, name);
      const double off = most > 0 ? distance / most : distance;
      if (off > worst_off) worst = {int64_t(s), q, name, distance, most};
      worst_off = std::max(worst_off, off);
    }
  }
  return worst;
}

}  // namespace weft
