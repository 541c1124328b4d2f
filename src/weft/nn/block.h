// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)), or experts in place of the mlp.
//   t tokens of this rank's stream, d its width
#pragma once
#include <string>

#include "weft/nn/attention.h"
#include "weft/nn/feed_forward.h"
#include "weft/nn/norm.h"

namespace weft {

class Block {
 public:
  struct Spec {
    StreamNorm::Spec norm;
    SelfAttention::Spec attention;
    FeedForward::Spec mlp;
  };
  struct Saved {
    StreamNorm::Saved attn_norm, mlp_norm;
    SelfAttention::Saved attn;
    FeedForward::Saved mlp;
    Tensor attn_h, mlp_h;  // [t, d]  normalized inputs   till wgrad; or dgrad .. wgrad where not kept
    Tensor middle;         // [t, d]  x + attention       till dgrad
  };
  Block(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // x, y [t, d]. x must live till dgrad.
  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const;
  // dy must live till wgrad.
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const;
  void wgrad(Pass& p, Saved& s) const;
  void decode(Pass& p, KvCache& cache, Tensor x, Tensor y) const;

 private:
  std::string attn_name_, mlp_name_;  // regions
  bool keep_;
  StreamNorm attn_norm_;
  SelfAttention attn_;
  StreamNorm mlp_norm_;
  FeedForward mlp_;
};

}  // namespace weft
