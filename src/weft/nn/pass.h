// What one micro-batch's trip through a model may use. Layers see nothing else: no rank, no axis size, no allocator.
#pragma once
#include <optional>
#include <span>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/expert_counts.h"
#include "weft/sharding/param.h"
#include "weft/sharding/sequence_cut.h"

namespace weft {

class VocabularyHead;

// What is stored of a teacher's logits at each token: the largest k.
struct TopLogits {
  Tensor ids;     // i32 [T, k]  their tokens, ascending, each once
  Tensor logits;  // stat [T, k]
  Tensor lse;     // stat [T]  log of the sum of exp(logit / temperature) over the whole vocabulary
};

// What a student learns beside its targets: a frozen model's distribution at each of its tokens.
struct Teaching {
  const VocabularyHead* head = nullptr;  // the teacher's, of fetched values; none: MicroBatch::top has what is known
  Tensor states = {};                    // compute [t, d']  what its product is given, placed like the stream
  Distillation loss;
  Tensor divergence;  // f64 [1]  receives the sum of the weighted divergences
};

// The tokens of one micro-batch, and what the model must know about them.
//   T tokens here, whole on tp   t those of this rank's stream
struct MicroBatch {
  int64_t index = 0;      // among the micro-batches of its step
  Tensor ids;             // i32 [T]
  Tensor targets;         // i32 [T]  the token that follows
  Tensor weights;         // stat [T]  of the target's loss; 0 where it does not count
  Tensor positions;       // i32 [T]  in the document
  Tensor tokens;          // i64 [T]  global number of each token: keys the random numbers of dropout
  Run stream;             // of [0, T): the rows of the stream here
  SequenceCut sequences;  // of which the T tokens are this rank's
  // The documents, each in rows of whole sequences as they are before ranks cut them, as queries and as keys.
  std::span<const AttentionSpan> spans;
  Tensor stream_positions() const { return positions.slice_rows(stream.first, stream.count); }  // i32 [t]
  Tensor stream_tokens() const { return tokens.slice_rows(stream.first, stream.count); }        // i64 [t]
  Tensor loss;            // f64 [1]  receives the sum of the targets' weighted losses, their cross-entropies
  double loss_scale = 1;  // of the gradient: 1 / what the step divides by (Objective)
  Tensor value_weights;   // stat [T]  of a target's value, whose loss is minus it; none in a model without values
  TopLogits top;          // of a teacher, where these are stored; of the stage with the head
  std::optional<Teaching> teaching;  // where the model learns from another one; of the stage with the head
  // For multi-token prediction; none in a model without it.
  Tensor mtp_targets;    // i32 [T]  the token after the target
  Tensor mtp_weights;    // stat [T]  1 where that counts and is of the same document
  Tensor mtp_loss;       // f64 [1]  receives the sum of their losses
  double mtp_scale = 0;  // of the gradient of that: 1 / their number, without the loss's factor
  // For routers, which see every token, whether it counts or not:
  int64_t sample_tokens = 0;    // of a sample, here; those of one lie together
  double token_scale = 1;       // of the gradient of a mean over all tokens of the global batch: 1 / their number
  bool counts_experts = false;  // whether routers count their tokens for losses over the whole batch (RouterRecords)
};

// Each arena is a lifetime.
struct Pass {
  Backend& be;
  const ProcessMesh& mesh;
  Precision precision;
  const MicroBatch& batch;
  Arena* scratch;           // until the enclosing Scope ends
  Arena* till_dgrad;        // forward .. dgrad
  Arena* till_wgrad;        // forward .. wgrad
  Arena* dgrad_till_wgrad;  // dgrad .. wgrad
  Arena* replay;  // forward .. dgrad of a layer that is being recomputed; not scratch, whose Scopes end between
  uint64_t dropout_key = 0;  // of the step; 0 outside of training: nothing is dropped
  bool adapters = true;      // false: as if the model had none
  // Where every rank of cp has these rows: they share products that spare each of them so many bytes of weights
  // (nn/shared_product.h).
  std::optional<int64_t> shares_from = {};
  // Weights of experts of other ranks are read where they lie (Param::of_ranks): no token goes to another rank.
  bool reaches_experts = false;

  Tensor compute(Arena* arena, Shape shape, Placement place) const {
    return arena->alloc(precision.compute, shape, place);
  }
  Tensor stat(Arena* arena, Shape shape, Placement place) const { return arena->alloc(precision.stat, shape, place); }
};

// How ranks that share sequences attend to each other's keys. First, groups of `head_ranks` neighbours exchange their
// rows for heads; then the groups, each as if it were one rank, do as `keys` says.
struct ContextPlan {
  enum class Keys : uint8_t { here, gathered, ring };
  Keys keys = Keys::here;
  int64_t head_ranks = 1;  // all of cp (nothing is left to do), or with `ring` a divisor
};

// How layers are placed and what they keep: the plan's values that constructors turn into placements and arenas.
struct LayerPlan {
  Spmd stream = Spmd::Invariant;  // the residual stream on tp: Invariant, or Shard0 (sequence parallel)
  bool cut_vocabulary = false;    // embedding table and head are cut by rows on tp, else whole
  bool keys_everywhere = false;   // key heads are fewer than the ranks that cut the query heads: each has all of them
  ContextPlan context = {};
  ExpertCapacity capacity = {};  // of ranks with experts that others have not
  bool keep_activations = true;  // false: norm outputs, MLP activations and the attention core are computed again
  bool keep_attention = false;   // then all the same kept: what the attention core makes, and latents
  int64_t logits_bytes = int64_t{64} << 20;  // of logits at once: small beside what blocks save
  // How a whole weight applied to the stream is held: ranks do equal work on an Invariant stream, different work on a
  // cut one.
  Spmd whole() const { return stream == Spmd::Invariant ? Spmd::Invariant : Spmd::Replicate; }
  bool keeps_attention() const { return keep_activations || keep_attention; }
  Spmd table() const { return cut_vocabulary ? Spmd::Shard0 : whole(); }
};

// w.grad (+)= dw, for a gradient that was made before its time. Nothing where w has none.
inline void add_gradient(Pass& p, Param& w, const Tensor& dw) {
  if (!w.learns()) return;
  if (w.accumulates())
    p.be.run(Add{.x = w.grad, .y = dw, .out = w.grad});
  else
    p.be.run(Copy{.from = dw, .to = w.grad});
}

}  // namespace weft
