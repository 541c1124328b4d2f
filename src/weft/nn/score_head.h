// One number for each token, of its normed state: the score of a reward model, where there is no vocabulary; or a value
// beside the head that has one.
//   t tokens of this rank's stream   T the same, whole on tp   d width
#pragma once
#include <string>

#include "weft/nn/head_targets.h"
#include "weft/nn/pass.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param_store.h"

namespace weft {

// score[i] = w h[i] + b. A token's loss is -score, so that more of the one is less of the other, as with
// log-probabilities: an objective's weights say whether scores rise or fall.
//   h, dh  [t, d]  placed like the stream
//   w, b   [1, d], [1]  whole: Invariant on an Invariant stream, else Replicate. Their gradients are written with dh.
// Each rank scores its part of the stream; ranks of tp then exchange the losses, a number for each token.
class ScoreHead {
 public:
  struct Spec {
    std::string name;
    int64_t width;
    double init_std;    // of w; b begins at 0
    bool bias = false;  // is there a b
  };
  ScoreHead(ParamStore& params, const Spec& spec, const LayerPlan& plan);

  // The gradient of scale * loss, of states h: [t, d] in scratch. Blocks while ranks exchange.
  Tensor loss_and_backward(Pass& p, Tensor h, const HeadTargets& targets) const;
  // The same without the loss, by these weights [T] stat.
  Tensor backward(Pass& p, Tensor h, Tensor weights, double scale) const;
  // Weighted losses of the single tokens of p.batch: nll [T] stat. Blocks while ranks exchange.
  void token_losses(Pass& p, Tensor h, const TokenLosses& to) const;
  // How losses are held.
  static Placement loss_place(const LayerPlan& plan) {
    return tokens(plan.stream == Spmd::Shard0 ? Spmd::Replicate : plan.stream);
  }

 private:
  Tensor losses(Pass& p, Tensor h, Tensor weights) const;
  static Tensor times(Pass& p, double factor, Tensor weights, Placement place);
  Param* w_;
  Param* b_ = nullptr;
  Boundary join_;
};

}  // namespace weft
