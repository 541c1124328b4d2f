// Optimizers over the flat tensors of a ParamStore. What they are is a value; where their state lies is the store's.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/sharding/param_store.h"

namespace weft {

struct StepSize {
  double lr;
  double grad_scale;      // gradients are multiplied by it: clipping
  int64_t step;           // from 1
  int64_t step_here = 0;  // of the phase's span, from 1: by it the steps of weights count that began late
  int64_t step_of(const ParamStore::UpdateRange& range) const { return range.late ? *range.late + step_here : step; }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // The tensors of state of a weight's part of so many elements, in order: all parts have those of the same names.
  std::vector<StateFormat> states(const ParamSpec& weight, int64_t elements) const {
    return weight.learns() ? states_of(weight, elements) : std::vector<StateFormat>();
  }
  StateFormats formats() const {  // while this lives
    return [this](const ParamSpec& weight, int64_t elements) { return states(weight, elements); };
  }
  std::vector<std::string> state_names(const ParamSpec& weight) const {
    std::vector<std::string> names;
    for (const StateFormat& s : states(weight, 0)) names.push_back(s.name);
    return names;
  }
  // Masters, states and rounded values of what this rank keeps, after finish_step; the memory of gradients may be used.
  // Temporaries come from `scratch` and are given back. All ranks of the store's mesh call it; it may block.
  virtual void update(Backend& backend, ParamStore& store, Arena& scratch, const StepSize& size) const = 0;

 private:
  virtual std::vector<StateFormat> states_of(const ParamSpec& weight,
                                             int64_t elements) const = 0;  // of one that learns
};

// Weight decay is of matrices and tables alone (ParamSpec::decays).
struct AdamWSpec {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};
std::unique_ptr<Optimizer> make_adamw(const AdamWSpec& spec);
// AdamW whose moments are codes in 8 bits between steps (Dettmers et al. 2022, "8-bit optimizers via block-wise
// quantization", sec. 2; ops/blockwise_ops.h): 2 bytes an element and 8 a code block of 256, in place of 8 an element.
// Each part of a weight (q, k, v of a fused qkv; every expert) is a tensor of its own, whose code blocks are of the
// whole of it, row by row, however ranks cut and keep it: so codes depend on no layout. Parts of fewer than `min_size`
// elements keep moments in full. bitsandbytes differs: it decays after the update, and no negative m becomes 0.
struct AdamW8Spec {
  AdamWSpec adamw = {};
  int64_t min_size = 4096;
};
std::unique_ptr<Optimizer> make_adamw8bit(const AdamW8Spec& spec);
struct SgdSpec {
  double momentum = 0.9, weight_decay = 0;
};
std::unique_ptr<Optimizer> make_sgd(const SgdSpec& spec);

// Muon (Jordan et al. 2024; Liu et al. 2025, "Muon is scalable for LLM training") for linear matrices, each
// part of a fused one (q, k, v; gate, up) on its own; AdamW for all other weights.
//   buf = momentum buf + g,  u = g + momentum buf (nesterov) or buf
//   w -= lr decay w + lr scale(rows, cols) NewtonSchulz(u)                      optim/newton_schulz.h
// torch.optim.Muon has (1 - momentum) g in buf: the same direction, to which Newton-Schulz brings it.
// The bits depend on the gradient alone, not on how tensors are cut and kept over dp.
struct MuonSpec {
  enum class Scale : uint8_t {
    match_rms_adamw,  // 0.2 sqrt(max(rows, cols)): as large as AdamW's updates       Liu et al. 2025, sec. 2
    original          // sqrt(max(1, rows / cols))                                      Jordan et al. 2024
  };
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;
  Scale scale = Scale::match_rms_adamw;
  AdamWSpec others = {};  // whose weight decay is the matrices' too
};
std::unique_ptr<Optimizer> make_muon(const MuonSpec& spec);
double muon_scale(MuonSpec::Scale scale, int64_t rows, int64_t cols);

// AdamW's update of one range.
void update_adamw(Backend& backend, const AdamWSpec& spec, const ParamStore::UpdateRange& range, const StepSize& size);

// Every weight of the store, after finish_step, and rounded values to the ranks that keep them whole. Blocks.
void update_all(Backend& backend, const Optimizer& optimizer, ParamStore& store, Arena& scratch, const StepSize& size);

// Factor that brings a gradient of this norm down to max_norm, as PyTorch's clip_grad_norm_; 1 where max_norm is 0.
double clip_scale(double norm, double max_norm);

}  // namespace weft
