// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)), or experts in place of the mlp; norms stand
// before each half, or behind, or both.   t tokens of this rank's stream, d its width
#pragma once
#include <memory>
#include <string>
#include <variant>

#include "weft/nn/any_attention.h"
#include "weft/nn/attention.h"
#include "weft/nn/feed_forward.h"
#include "weft/nn/half_norm.h"
#include "weft/nn/latent_attention.h"

namespace weft {

class Block {
 public:
  struct Spec {
    StreamNorm::Spec norm;
    std::variant<SelfAttention::Spec, LatentAttention::Spec> attention;
    FeedForward::Spec mlp;
    bool norm_before = true, norm_behind = false;  // of each half
  };
  struct Saved {
    NormBefore::Saved attn_norm, mlp_norm;
    NormBehind::Saved attn_added, mlp_added;
    std::unique_ptr<AnyAttention::Saved> attn;  // made by the first forward
    FeedForward::Saved mlp;
    Tensor attn_h, mlp_h;  // [t, d]  inputs of the halves   till wgrad; or dgrad .. wgrad where not kept
    Tensor middle;         // [t, d]  x + attention       till dgrad
  };
  Block(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // x, y [t, d]. x must live till dgrad.
  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const;
  // dy must live till wgrad.
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const;
  void wgrad(Pass& p, Saved& s) const;
  const AnyAttention& attention() const { return *attn_; }
  // Writes y; keys and values go to the cache.
  struct Streams {
    Tensor x, y;
  };
  void decode(Pass& p, const KvCache& cache, const CacheUse& use, const Streams& between) const;

 private:
  std::string attn_name_, mlp_name_;  // regions
  bool keep_;
  NormBefore attn_norm_;
  std::unique_ptr<AnyAttention> attn_;
  NormBehind attn_added_;
  NormBefore mlp_norm_;
  FeedForward mlp_;
  NormBehind mlp_added_;
};

}  // namespace weft
