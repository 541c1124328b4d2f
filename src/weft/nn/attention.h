// The attention half of a block: grouped-query, rotary or not, causal, optionally with a sliding window.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream
//   h, g query and key heads (here)   e head width             W = (h + 2 g) e
// Query heads are cut on tp. Key heads are cut with them; or they are everywhere (LayerPlan), and a rank attends to the
// one that its queries need.
#pragma once
#include <string>

#include "weft/nn/attention_core.h"
#include "weft/nn/linear.h"
#include "weft/nn/row_parallel_linear.h"
#include "weft/sharding/boundary.h"

namespace weft {

// Keys and values of the tokens that a sequence has so far, for one layer: [max tokens, g e] each. Rows are appended.
struct KvCache {
  Tensor k, v;
  int64_t count = 0;  // tokens held
};

class SelfAttention {
 public:
  struct Spec {
    int64_t width, heads, kv_heads, head_dim;
    int64_t window;  // keys a query sees, itself included; 0: all before it
    bool qkv_bias, out_bias;
    bool qk_norm;  // RMS norm of each head of q and k
    double norm_eps;
    const Tensor* rope_table;  // [P, e] of the model; null: no rotation. Read when layers run
    double init_std, out_init_std;
    double dropout, attention_dropout;
  };
  struct Saved {
    Tensor raw;               // [T, (h+g) e] q and k before their norm, if they have one   till dgrad
    Tensor q_rstd, k_rstd;    // [T, h], [T, g]                                             till dgrad
    Tensor qkv;               // [T, W]      as attention reads them                        till dgrad
    Tensor lse;               // [T, h]      till dgrad; empty where the core is computed again
    Tensor o;                 // [T, h e]    till wgrad; or dgrad .. wgrad where computed again
    Tensor dy;                // [t, d]      till wgrad (owned by the block)
    Tensor dqkv;              // [T, W]      dgrad .. wgrad
    Tensor dq_norm, dk_norm;  // [e]  stat   dgrad .. wgrad
  };
  SelfAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // The result lies in scratch, placed like the stream.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s, Tensor h) const;
  // Forward of tokens that follow those in the cache, which receives theirs. One sequence; nothing is saved.
  Tensor decode(Pass& p, KvCache& cache, Tensor h) const;

 private:
  const Piece& queries() const { return qkv_.weight().pieces()[0]; }
  const Piece& keys() const { return qkv_.weight().pieces()[1]; }
  QueryKeyValue split(Tensor qkv, Spmd everywhere) const;
  Tensor attended(Tensor k) const;
  QueryKeyValue attended(const QueryKeyValue& all) const { return {all.q, attended(all.k), attended(all.v)}; }
  void project(Pass& p, Saved& s, Tensor h, Arena* home) const;
  void normalize(Pass& p, Saved& s, const QueryKeyValue& qkv, Arena* home) const;
  Tensor normalize_backward(Pass& p, const Param& w, Tensor x, Tensor rstd, Tensor dx) const;
  AttentionHeads heads() const;

  Spec spec_;
  bool keep_;
  Boundary enter_;
  Linear qkv_;
  RowParallelLinear out_;
  Param *q_norm_ = nullptr, *k_norm_ = nullptr;
  AttentionCore core_;
};

}  // namespace weft
