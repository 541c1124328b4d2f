// The second half of a block: an MLP, or a mixture of experts.   t tokens of this rank's stream, d its width
#pragma once
#include <variant>

#include "weft/nn/experts.h"
#include "weft/nn/mlp.h"

namespace weft {

class FeedForward {
 public:
  using Spec = std::variant<Mlp::Spec, Experts::Spec>;
  struct Saved {  // of the one that it is
    Mlp::Saved mlp;
    Experts::Saved experts;
  };
  FeedForward(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // h, dy and the results [t, d]. The result lies in scratch, placed like the stream; dy must live till wgrad.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  // `h` again where the block did not keep it.
  void wgrad(Pass& p, const Saved& s, Tensor h) const;

 private:
  std::variant<Mlp, Experts> layer_;
};

}  // namespace weft
