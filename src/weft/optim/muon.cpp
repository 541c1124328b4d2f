#include <algorithm>
#include <cmath>

#include "weft/optim/newton_schulz.h"
#include "weft/optim/optimizer.h"
#include "weft/sharding/whole_matrices.h"

namespace weft {
namespace {

class MuonOptimizer final : public Optimizer {
 public:
  explicit MuonOptimizer(const MuonSpec& spec) : spec_(spec) {}

  // Between the two passes over what is kept here, the gradient's memory holds the update, elementwise and whole.
  void update(Backend& backend, ParamStore& store, Arena& scratch, const StepSize& size) const override {
    for (int u = 0; u < store.num_units(); ++u) {
      for (const ParamStore::UpdateRange& s : store.update_ranges(u)) {
        if (s.linear)
          add_to_momentum(backend, s, size);
        else
          update_adamw(backend, spec_.others, s, size);
      }
    }
    wait_replace_whole(backend, store, scratch, [&](Tensor x) {
      wait_orthogonalize(backend, scratch, x, spec_.ns_steps);
      backend.run(Axpby{.x = x, .out = x, .a = muon_scale(spec_.scale, x.rows(), x.cols())});
    });
    for (int u = 0; u < store.num_units(); ++u)
      for (const ParamStore::UpdateRange& s : store.update_ranges(u))
        if (s.linear) apply(backend, s, size);
  }

 private:
  std::vector<StateFormat> states_of(const ParamSpec& weight, int64_t) const override {
    if (weight.linear) return {{.name = "momentum_buffer"}};
    return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }
  void add_to_momentum(Backend& backend, const ParamStore::UpdateRange& s, const StepSize& size) const {
    const Tensor &buf = s.states[0], &g = s.grad;
    backend.run(Axpby{.x = buf, .y = g, .out = buf, .a = spec_.momentum, .b = size.grad_scale});
    if (spec_.nesterov)
      backend.run(Axpby{.x = g, .y = buf, .out = g, .a = size.grad_scale, .b = spec_.momentum});
    else
      backend.run(Copy{.from = buf, .to = g});
  }
  void apply(Backend& backend, const ParamStore::UpdateRange& s, const StepSize& size) const {
    backend.run(Axpby{
        .x = s.master, .y = s.grad, .out = s.master, .a = 1 - size.lr * spec_.others.weight_decay, .b = -size.lr});
    if (s.value) backend.run(Copy{.from = s.master, .to = s.value});
  }

  MuonSpec spec_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const MuonSpec& spec) { return std::make_unique<MuonOptimizer>(spec); }

double muon_scale(MuonSpec::Scale scale, int64_t rows, int64_t cols) {
  if (scale == MuonSpec::Scale::original) return std::sqrt(std::max(1.0, double(rows) / double(cols)));
  return 0.2 * std::sqrt(double(std::max(rows, cols)));
}

}  // namespace weft
