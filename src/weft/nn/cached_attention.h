// Attention of tokens that look back to the keys and values that caches hold.
//   n rows: tokens   R rows of the caches here   h, g query and key heads here   e width of a head   u of values
#pragma once
#include "weft/nn/attention_core.h"
#include "weft/nn/kv_cache.h"

namespace weft {

// Each rank of cp attends to what it keeps, run by run; then all bring their results together and merge them by their
// log-sum-exp, that of the rank which keeps the token itself first: the same bits on every rank.
class CachedAttention {
 public:
  // in.q [n, h e]; in.k [R, g e], in.v [R, g u]: of the caches. Writes o [n, h u] and lse [n, h] (stat). Blocks while
  // ranks exchange.
  void forward(Pass& p, const CacheUse& use, const AttentionHeads& heads, const QueryKeyValue& in,
               const AttentionCore::Saved& out) const;

 private:
  void attend(Pass& p, const CacheUse& use, const AttentionHeads& heads, const QueryKeyValue& in,
              const AttentionCore::Saved& out) const;
  void merge_ranks(Pass& p, const CacheUse& use, int64_t window, const AttentionCore::Saved& out) const;
};

}  // namespace weft
