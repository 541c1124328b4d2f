#include "weft/verify/expected_update.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using Values = std::vector<double>;

// Farthest element from what is expected, relative to the tensor's size.
class Farthest {
 public:
  explicit Farthest(double size) : size_(size) {}
  void see(double is, double expected) {
    const double apart = is == expected ? 0 : std::abs(is - expected) / size_;
    most_ = std::isfinite(apart) ? std::max(most_, apart) : INFINITY;
  }
  double most() const { return most_; }

 private:
  double size_, most_ = 0;
};

struct Tensors {
  const Values &gradient, *before;    // `before`: the weight
  const RunRecord::Step *now, *last;  // `last`: none before the first step
  const std::string& name;
  bool decays;
  double clip;
  int64_t step;  // from 1

  const WholeTensor& state(const char* kind) const { return now->states.at(kind + (" of " + name)); }
  double state_before(const char* kind, size_t i) const {
    return last == nullptr ? 0 : last->states.at(kind + (" of " + name)).values[i];
  }
};

double norm_of(const RunRecord::Step& step) {
  double squares = 0;
  for (const auto& [name, gradient] : step.gradients)
    for (const double g : gradient.values) squares += g * g;
  return std::sqrt(squares);
}

// Loshchilov & Hutter 2019, algorithm 2.
void expect_adamw(const Tensors& t, const Recipe::Optimizer& o, Distances::Step& far) {
  const WholeTensor &m = t.state("exp_avg"), &v = t.state("exp_avg_sq"), &w = t.now->weights.at(t.name);
  Farthest far_m(m.size), far_v(v.size), far_w(w.size);
  for (size_t i = 0; i < t.gradient.size(); ++i) {
    const double g = t.clip * t.gradient[i];
    const double mean = o.adam_beta1 * t.state_before("exp_avg", i) + (1 - o.adam_beta1) * g;
    const double square = o.adam_beta2 * t.state_before("exp_avg_sq", i) + (1 - o.adam_beta2) * g * g;
    const double mean_hat = mean / (1 - std::pow(o.adam_beta1, double(t.step)));
    const double square_hat = square / (1 - std::pow(o.adam_beta2, double(t.step)));
    const double decayed = (*t.before)[i] * (1 - (t.decays ? o.lr * o.weight_decay : 0));
    far_m.see(m.values[i], mean);
    far_v.see(v.values[i], square);
    far_w.see(w.values[i], decayed - o.lr * mean_hat / (std::sqrt(square_hat) + o.adam_eps));
  }
  far.states["exp_avg of " + t.name] = far_m.most();
  far.states["exp_avg_sq of " + t.name] = far_v.most();
  far.weights[t.name] = far_w.most();
}

// As PyTorch's: the first step's buffer is the gradient.
void expect_sgd(const Tensors& t, const Recipe::Optimizer& o, Distances::Step& far) {
  const WholeTensor &buffer = t.state("momentum_buffer"), &w = t.now->weights.at(t.name);
  Farthest far_buffer(buffer.size), far_w(w.size);
  for (size_t i = 0; i < t.gradient.size(); ++i) {
    const double before = (*t.before)[i];
    const double g = t.clip * t.gradient[i] + (t.decays ? o.weight_decay * before : 0);
    const double moved = o.momentum * t.state_before("momentum_buffer", i) + g;
    far_buffer.see(buffer.values[i], moved);
    far_w.see(w.values[i], before - o.lr * moved);
  }
  far.states["momentum_buffer of " + t.name] = far_buffer.most();
  far.weights[t.name] = far_w.most();
}

void expect_muon_momentum(const Tensors& t, const Recipe::Optimizer& o, Distances::Step& far) {
  const WholeTensor& buffer = t.state("momentum_buffer");
  Farthest far_buffer(buffer.size);
  for (size_t i = 0; i < t.gradient.size(); ++i)
    far_buffer.see(buffer.values[i], o.muon_momentum * t.state_before("momentum_buffer", i) + t.clip * t.gradient[i]);
  far.states["momentum_buffer of " + t.name] = far_buffer.most();
  far.weights[t.name] = 0;
}

}  // namespace

Distances update_distances(const RunRecord& record, const Recipe& recipe) {
  const Recipe::Optimizer& o = recipe.optimizer;
  Distances distances(record.steps.size());
  for (size_t s = 0; s < record.steps.size(); ++s) {
    const RunRecord::Step &now = record.steps[s], *last = s > 0 ? &record.steps[s - 1] : nullptr;
    Distances::Step& far = distances.steps()[s];
    const double norm = norm_of(now);
    far.grad_norm = norm == now.grad_norm ? 0 : std::abs(norm - now.grad_norm) / norm;
    const double clip = o.clip_grad > 0 ? std::min(1.0, o.clip_grad / (norm + 1e-6)) : 1;  // clip_grad_norm_'s epsilon
    for (const std::string& name : record.order) {
      const Values& before = last != nullptr ? last->weights.at(name).values : record.first_weights.at(name).values;
      const RunRecord::Kind& kind = record.kinds.at(name);
      const Tensors t{now.gradients.at(name).values, &before, &now, last, name, kind.decays, clip, int64_t(s) + 1};
      far.gradients[name] = 0;
      if (o.name == "sgd")
        expect_sgd(t, o, far);
      else if (o.name == "muon" && kind.linear)
        expect_muon_momentum(t, o, far);
      else
        expect_adamw(t, o, far);
    }
  }
  return distances;
}

}  // namespace weft
