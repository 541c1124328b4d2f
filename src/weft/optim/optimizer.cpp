#include "weft/optim/optimizer.h"

#include <algorithm>

namespace weft {
namespace {

class AdamWOptimizer final : public Optimizer {
 public:
  explicit AdamWOptimizer(const AdamWSpec& spec) : spec_(spec) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(Backend& backend, const ParamStore::Segment& s, const StepSize& size) const override {
    backend.run(AdamW{.w = s.master,
                      .grad = s.grad,
                      .m = s.states[0],
                      .v = s.states[1],
                      .value = s.value,
                      .lr = size.lr,
                      .beta1 = spec_.beta1,
                      .beta2 = spec_.beta2,
                      .eps = spec_.eps,
                      .weight_decay = s.decays ? spec_.weight_decay : 0,
                      .grad_scale = size.grad_scale,
                      .step = size.step});
  }

 private:
  AdamWSpec spec_;
};

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const SgdSpec& spec) : spec_(spec) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  void update(Backend& backend, const ParamStore::Segment& s, const StepSize& size) const override {
    backend.run(Sgd{.w = s.master,
                    .grad = s.grad,
                    .buf = s.states[0],
                    .value = s.value,
                    .lr = size.lr,
                    .momentum = spec_.momentum,
                    .weight_decay = s.decays ? spec_.weight_decay : 0,
                    .grad_scale = size.grad_scale,
                    .step = size.step});
  }

 private:
  SgdSpec spec_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWSpec& spec) { return std::make_unique<AdamWOptimizer>(spec); }
std::unique_ptr<Optimizer> make_sgd(const SgdSpec& spec) { return std::make_unique<SgdOptimizer>(spec); }

void update_all(Backend& backend, const Optimizer& optimizer, ParamStore& store, const StepSize& size) {
  for (int u = 0; u < store.num_units(); ++u) {
    for (const auto& segment : store.segments(u)) optimizer.update(backend, segment, size);
  }
  backend.wait_all();
  store.updated();
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace weft
