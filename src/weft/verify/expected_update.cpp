#include "weft/verify/expected_update.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/backend_around.h"

namespace weft {
namespace {

// A sum of independent roundings is farther from its mean with a probability of less than 2 exp(-8^2 / 2): none of the
// 1e7 numbers that are compared, but for one comparison in a million.                     Higham & Mary 2019, sec. 2
constexpr double kDeviations = 8;
constexpr double kF32Roundoff = 0x1p-24;
constexpr double kOpsOfBlock = 13;  // one after the other, forward: as many backward
constexpr double kOpsBeside = 8;    // of embedding, head and loss, forward and backward

int bits_of(PrecisionChoice precision) { return -std::ilogb(unit_roundoff(precision)); }

class Rounded final : public BackendAround {
 public:
  Rounded(Backend& inner, int bits) : BackendAround(inner), splitter_(std::ldexp(1.0, 53 - bits) + 1) {}

  void run(const AnyOp& op) override {
    inner_.run(op);
    if (path_.text().empty()) return;  // sums over micro-batches and updates are in f32 in any precision
    inner_.wait_all();
    for (const Field& f : op.fields())
      if (f.role != Role::in && *f.tensor && f.tensor->dtype == DType::f64) round(*f.tensor);
  }

 private:
  // To the nearest of so many bits.                                            Dekker 1971
  void round(const Tensor& t) const {
    for (int64_t i = 0; i < t.rows(); ++i) {
      double* row = t.as<double>() + i * t.row_stride;
      for (int64_t j = 0; j < t.cols(); ++j) {
        const double large = splitter_ * row[j];
        if (std::isfinite(large)) row[j] = large - (large - row[j]);
      }
    }
  }
  const double splitter_;
};

}  // namespace

double unit_roundoff(PrecisionChoice precision) {
  return precision == PrecisionChoice::bf16 ? 0x1p-8 : precision == PrecisionChoice::fp16 ? 0x1p-11 : kF32Roundoff;
}

RoundingBound::RoundingBound(const Recipe& recipe, const ModelSpec& m) {
  const auto seq = double(recipe.train.seq_length),
             tokens = seq * double(recipe.train.global_batch_size * sequences_of_sample(recipe));
  const auto width = double(m.width), heads = double(m.result_width());
  // Terms of the sums on a path: norms, products with q/k/v, out, up and down; scores, softmax, values; those of the
  // latents and of what is made of them.
  const double latents = m.latent ? 2 * double(m.latent->q_rank + m.latent->kv_rank) : 0;
  const double of_block = 4 * width + heads + latents + double(m.ffn_width) + double(m.head_dim) + 2 * seq;
  const double layers = double(m.num_layers);
  const double additions = 2 * layers * of_block + 2 * (width + double(m.vocab_size)) + tokens;
  const double results = (2 * kOpsOfBlock * layers + kOpsBeside) * std::pow(unit_roundoff(recipe.train.precision), 2);
  const double all = results + additions * kF32Roundoff * kF32Roundoff;
  gradient_ = kDeviations * std::sqrt(all);
  beside_results_ = std::sqrt(all / results);
}

double RoundingBound::of(int64_t step, Quantity quantity) const {
  return gradient_ * double(step + 1) * (quantity == Quantity::states ? 2 : 1);
}

DecorateBackend rounded_to(PrecisionChoice precision) {
  return [bits = bits_of(precision)](Backend& inner, const ProcessMesh&) -> std::unique_ptr<Backend> {
    return std::make_unique<Rounded>(inner, bits);
  };
}

namespace {

using Values = std::vector<double>;

// Farthest element from what is expected, relative to the tensor's size.
class Farthest {
 public:
  // `free`: so far off is no distance.
  explicit Farthest(double size, double free = 0) : size_(size), free_(free) {}
  void see(double is, double expected) {
    const double apart = is == expected ? 0 : std::max(0.0, std::abs(is - expected) - free_) / size_;
    most_ = std::isfinite(apart) ? std::max(most_, apart) : INFINITY;
  }
  double most() const { return most_; }

 private:
  double size_, free_, most_ = 0;
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

// Loshchilov & Hutter 2019, algorithm 2. Moments in 8 bits are the nearest levels afterwards: half of the widest gap
// between two is no distance.
void expect_adamw(const Tensors& t, const Recipe::Optimizer& o, Distances::Step& far) {
  const WholeTensor &m = t.state("exp_avg"), &v = t.state("exp_avg_sq"), &w = t.now->weights.at(t.name);
  const double half_gap = o.name == OptimizerKind::adamw8bit ? 0.9 / 128 : 0;
  Farthest far_m(m.size, 1.01 * half_gap * m.size), far_v(v.size, 1.01 * half_gap / 2 * v.size), far_w(w.size);
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
      if (!kind.learns) {  // no optimizer updates it
        far.weights[name] = 0;
        continue;
      }
      const Tensors t{now.gradients.at(name).values, &before, &now, last, name, kind.decays, clip, int64_t(s) + 1};
      far.gradients[name] = 0;
      if (o.name == OptimizerKind::sgd)
        expect_sgd(t, o, far);
      else if (o.name == OptimizerKind::muon && kind.linear)
        expect_muon_momentum(t, o, far);
      else
        expect_adamw(t, o, far);
    }
  }
  return distances;
}

}  // namespace weft
