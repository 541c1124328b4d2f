// Optimizers over the flat tensors of a ParamStore. What they are is a value; where their state lies is the store's.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/dist/param_store.h"

namespace weft {

struct StepSize {
  double lr;
  double grad_scale;  // gradients are multiplied by it: clipping
  int64_t step;       // from 1
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> state_names() const = 0;  // of the tensors of state, in order
  virtual void update(Backend& backend, const ParamStore::Segment& segment, const StepSize& size) const = 0;
};

struct AdamWSpec {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};
std::unique_ptr<Optimizer> make_adamw(const AdamWSpec& spec);
struct SgdSpec {
  double momentum = 0.9, weight_decay = 0;
};
std::unique_ptr<Optimizer> make_sgd(const SgdSpec& spec);

// Every weight of the store, after finish_step. Blocks.
void update_all(Backend& backend, const Optimizer& optimizer, ParamStore& store, const StepSize& size);

// Factor that brings a gradient of this norm down to max_norm, as PyTorch's clip_grad_norm_; 1 where max_norm is 0.
double clip_scale(double norm, double max_norm);

}  // namespace weft
