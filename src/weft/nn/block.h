// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)).   t tokens of this rank's stream, d its width
#pragma once
#include <memory>
#include <string>
#include <variant>

#include "weft/nn/any_attention.h"
#include "weft/nn/attention.h"
#include "weft/nn/latent_attention.h"
#include "weft/nn/mlp.h"
#include "weft/nn/norm.h"

namespace weft {

class Block {
 public:
  struct Spec {
    StreamNorm::Spec norm;
    std::variant<SelfAttention::Spec, LatentAttention::Spec> attention;
    Mlp::Spec mlp;
  };
  struct Saved {
    StreamNorm::Saved attn_norm, mlp_norm;
    std::unique_ptr<AnyAttention::Saved> attn;  // made by the first forward
    Mlp::Saved mlp;
    Tensor attn_h, mlp_h;  // [t, d]  normalized inputs   till wgrad; or dgrad .. wgrad where not kept
    Tensor middle;         // [t, d]  x + attention       till dgrad
  };
  Block(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // x, y [t, d]. x must live till dgrad.
  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const;
  // dy must live till wgrad.
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const;
  void wgrad(Pass& p, Saved& s) const;
  const AnyAttention& attention() const { return *attn_; }
  void decode(Pass& p, KvCache& cache, Tensor x, Tensor y) const;

 private:
  std::string attn_name_, mlp_name_;  // regions
  bool keep_;
  StreamNorm attn_norm_;
  std::unique_ptr<AnyAttention> attn_;
  StreamNorm mlp_norm_;
  Mlp mlp_;
};

}  // namespace weft
