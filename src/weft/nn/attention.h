// The attention half of a block: grouped-query, rotary or not, causal, optionally with a sliding window.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream
//   h, g query and key heads (here)   e head width             W = (h + 2 g) e
// Query heads are cut on tp. Key heads are cut with them; or they are everywhere (LayerPlan), and a rank attends to the
// one that its queries need.
#pragma once
#include <string>

#include "weft/nn/attention_core.h"
#include "weft/nn/attention_sinks.h"
#include "weft/nn/cached_attention.h"
#include "weft/nn/projection.h"
#include "weft/nn/projection_norm.h"
#include "weft/nn/row_parallel_linear.h"
#include "weft/sharding/boundary.h"

namespace weft {

class SelfAttention {
 public:
  struct Spec {
    int64_t width, heads, kv_heads, head_dim;
    int64_t window;  // keys a query sees, itself included; 0: all before it
    bool qkv_bias, out_bias;
    ProjectionNorm::Over qk_norm;  // of q and of k
    double norm_eps, norm_offset;
    double scale, softcap;     // of scores (AttentionHeads)
    bool sinks;                // a logit of its own for each head
    const Tensor* rope_table;  // [P, R] of the model: R numbers of a head turn; null: none. Read when layers run
    bool rope_interleaved;     // in neighbouring pairs
    double init_std, out_init_std;
    double dropout, attention_dropout;
  };
  struct Saved {
    Tensor raw;  // [T, (h+g) e] q and k before their norm, if they have one   till dgrad
    ProjectionNorm::Saved q_norm, k_norm;
    AttentionSinks::Saved sinks;
    Tensor qkv;   // [T, W]      as attention reads them                        till dgrad
    Tensor lse;   // [T, h]      till dgrad; empty where the core is computed again
    Tensor o;     // [T, h e]    till wgrad; or dgrad .. wgrad where computed again
    Tensor dy;    // [t, d]      till wgrad (owned by the block)
    Tensor dqkv;  // [T, W]      dgrad .. wgrad
    Projection::Saved in, out;
  };
  SelfAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // The result lies in scratch, placed like the stream.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s, Tensor h) const;
  // Keys and values that the queries here read, [rows, g e] each.
  KvCache make_cache(Arena& arena, DType compute, int64_t rows) const;
  // Forward, for text to go on: keys and values go to the cache. Nothing is saved.
  Tensor decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const;

 private:
  const HeldPart& queries() const { return qkv_.weight().parts()[0]; }
  const HeldPart& keys() const { return qkv_.weight().parts()[1]; }
  QueryKeyValue split(Tensor qkv, Spmd everywhere) const;
  Tensor attended(Tensor k) const;
  QueryKeyValue attended(const QueryKeyValue& all) const { return {all.q, attended(all.k), attended(all.v)}; }
  void project(Pass& p, Saved& s, Tensor h, Arena* home) const;
  void normalize(Pass& p, Saved& s, const QueryKeyValue& qkv, Arena* home) const;
  void normalize_backward(Pass& p, Saved& s, Tensor dq, Tensor dk) const;
  void rotate(Pass& p, Tensor x, bool inverse) const;
  void core(Pass& p, const Tensor& qkv, Tensor o, Tensor lse) const;
  AttentionHeads heads() const;

  Spec spec_;
  bool keep_;
  Boundary enter_;
  Projection qkv_;
  RowParallelLinear out_;
  ProjectionNorm q_norm_, k_norm_;
  AttentionSinks sinks_;
  std::unique_ptr<AttentionCore> core_;
  CachedAttention cached_;
};

}  // namespace weft
