#include "weft/optim/optimizer.h"

#include <algorithm>

namespace weft {
namespace {

// An optimizer that updates each range by itself.
class ElementwiseOptimizer : public Optimizer {
 public:
  void update(Backend& backend, ParamStore& store, Arena&, const StepSize& size) const final {
    for (int u = 0; u < store.num_units(); ++u)
      for (const ParamStore::UpdateRange& range : store.update_ranges(u)) update(backend, range, size);
  }

 private:
  virtual void update(Backend& backend, const ParamStore::UpdateRange& s, const StepSize& size) const = 0;
};

class AdamWOptimizer final : public ElementwiseOptimizer {
 public:
  explicit AdamWOptimizer(const AdamWSpec& spec) : spec_(spec) {}

 private:
  std::vector<StateFormat> states_of(const ParamSpec&, int64_t) const override {
    return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }
  void update(Backend& backend, const ParamStore::UpdateRange& s, const StepSize& size) const override {
    update_adamw(backend, spec_, s, size);
  }
  AdamWSpec spec_;
};

class SgdOptimizer final : public ElementwiseOptimizer {
 public:
  explicit SgdOptimizer(const SgdSpec& spec) : spec_(spec) {}

 private:
  std::vector<StateFormat> states_of(const ParamSpec&, int64_t) const override { return {{.name = "momentum_buffer"}}; }
  void update(Backend& backend, const ParamStore::UpdateRange& s, const StepSize& size) const override {
    backend.run(Sgd{.w = s.master,
                    .grad = s.grad,
                    .buf = s.states[0],
                    .value = s.value,
                    .lr = size.lr,
                    .momentum = spec_.momentum,
                    .weight_decay = s.decays ? spec_.weight_decay : 0,
                    .grad_scale = size.grad_scale,
                    .step = size.step_of(s)});
  }
  SgdSpec spec_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWSpec& spec) { return std::make_unique<AdamWOptimizer>(spec); }
std::unique_ptr<Optimizer> make_sgd(const SgdSpec& spec) { return std::make_unique<SgdOptimizer>(spec); }

void update_adamw(Backend& backend, const AdamWSpec& spec, const ParamStore::UpdateRange& s, const StepSize& size) {
  backend.run(AdamW{.w = s.master,
                    .grad = s.grad,
                    .m = s.states[0],
                    .v = s.states[1],
                    .value = s.value,
                    .lr = size.lr,
                    .beta1 = spec.beta1,
                    .beta2 = spec.beta2,
                    .eps = spec.eps,
                    .weight_decay = s.decays ? spec.weight_decay : 0,
                    .grad_scale = size.grad_scale,
                    .step = size.step_of(s)});
}

void update_all(Backend& backend, const Optimizer& optimizer, ParamStore& store, Arena& scratch, const StepSize& size) {
  optimizer.update(backend, store, scratch, size);
  store.updated();
  backend.wait_all();
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace weft
