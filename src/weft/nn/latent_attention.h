// The attention half of a block whose heads are made of latents, causal.          DeepSeek-V2, 2024, sec. 2.1
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream   h heads (here)
//   n, r columns of a head's query and key that do not rotate, and that do; e = n + r   u columns of its value
//   c width of the latent of keys and values
// A head's key is its own n columns and r columns that all heads share. Latents are made of whole weights on the
// stream, as it is cut or not; heads are cut on tp, and what crosses between is the latents, not the stream.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "weft/nn/attention_core.h"
#include "weft/nn/cached_attention.h"
#include "weft/nn/latent.h"
#include "weft/nn/row_parallel_linear.h"
#include "weft/sharding/boundary.h"

namespace weft {

class LatentAttention {
 public:
  struct Spec {
    int64_t width, heads;
    int64_t q_rank;  // of the latent of queries; 0: queries are made of the stream itself
    int64_t kv_rank;
    int64_t nope_dim, rope_dim, v_dim;
    bool interleaved;  // what rotates are pairs (2 i, 2 i + 1), else halves
    double scale;      // of q k^T
    double norm_eps;
    const Tensor* rope_table;  // [P, r] of the model. Read when layers run
    double init_std, out_init_std;
    double dropout, attention_dropout;
  };
  struct Saved {
    Latent::Saved q_latent, kv_latent;
    Tensor q;    // [T, h e]        till dgrad; empty where made again of a latent
    Tensor k;    // [T, h e]        till dgrad; empty where made again
    Tensor v;    // [T, h u]        till dgrad; empty where made again
    Tensor lse;  // [T, h]          till dgrad; empty where the core is computed again
    Tensor o;    // [T, h u]        till wgrad; or dgrad .. wgrad where computed again
    Tensor dy;   // [t, d]          till wgrad (owned by the block)
    Tensor dq;   // [T, h e]        dgrad .. wgrad
    Tensor dkv;  // [T, h (n + u)]  dgrad .. wgrad
    Projection::Saved q_in, kv_in, out;
  };
  LatentAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // The result lies in scratch, placed like the stream.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s, Tensor h) const;
  // Latents are cached, not the heads' keys and values: k [rows, c + r], no v.
  KvCache make_cache(Arena& arena, DType compute, int64_t rows) const;
  // Forward, for text to go on: latents go to the cache. Nothing is saved.
  Tensor decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const;

 private:
  int64_t head_dim() const { return spec_.nope_dim + spec_.rope_dim; }
  AttentionHeads heads() const;
  // Projection::forward, or again in dgrad.
  using Product = void (Projection::*)(Pass&, Projection::Saved&, Tensor, Tensor) const;
  Tensor queries(Pass& p, Saved& s, Tensor from, Arena* home, Product product = &Projection::forward) const;
  // And values.
  std::pair<Tensor, Tensor> keys(Pass& p, Saved& s, Tensor latent, Arena* home,
                                 Product product = &Projection::forward) const;
  void rotate(Pass& p, Tensor q, bool inverse) const;
  void keys_backward(Pass& p, Saved& s, const QueryKeyValue& d, Tensor dh) const;
  void add_queries_backward(Pass& p, Saved& s, Tensor dh) const;
  void expand_again(Pass& p, Saved& s) const;
  Tensor attend_to_latents(Pass& p, const KvCache& cache, const CacheUse& use, Tensor q) const;

  Spec spec_;
  bool keep_;
  std::optional<Latent> q_latent_;
  Latent kv_latent_;
  Boundary enter_;
  Projection q_, kv_;  // [h e, width or rank], [h (n + u), c]
  RowParallelLinear out_;
  std::unique_ptr<AttentionCore> core_;
  CachedAttention cached_;
};

}  // namespace weft
