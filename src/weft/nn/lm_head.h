// From the last stream to the loss: final norm, output head, cross-entropy.
//   t tokens of this rank's stream   T the same, whole on tp   c tokens of a chunk   d width
//   V vocabulary, v the part of it here
#pragma once
#include "weft/nn/logit_cap.h"
#include "weft/nn/norm.h"
#include "weft/nn/vocabulary_loss.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Logits exist for one chunk of tokens at a time: loss, gradient of the logits, and their two products are made while
// they are there. So the head's weight gradient is written here and not in a wgrad (docs/decisions/0002).
class LmHead {
 public:
  struct Spec {
    StreamNorm::Spec norm;
    int64_t vocab_size;
    Param* table;  // the embedding's, or null for a head of its own
    double init_std;
    double softcap = 0;  // on logits; 0: none
  };
  LmHead(ParamStore& params, const Spec& spec, const LayerPlan& plan);

  // The sum of the weighted losses of all tokens goes to p.batch.loss; dx [t, d] receives the gradient of loss_scale *
  // loss, and the weights' gradients theirs.
  void loss_and_backward(Pass& p, Tensor x, Tensor dx) const;
  // logits [n, V] stat, whole on tp, of an x [n, d] placed like the stream. Blocks while ranks exchange.
  void logits(Pass& p, Tensor x, Tensor logits) const;
  // Weighted losses of single tokens: nll [T] stat.
  void token_losses(Pass& p, Tensor x, Tensor nll) const;
  // How losses are held.
  static Placement loss_place(const LayerPlan& plan) {
    return tokens(plan.cut_vocabulary ? Spmd::Invariant : plan.stream);
  }

 private:
  struct Chunk {
    int64_t first, rows;
  };
  std::vector<Chunk> chunks_of(const Pass& p, int64_t tokens, int64_t least) const;
  Tensor project(Pass& p, Tensor h) const;
  Tensor alloc_logits(Pass& p, DType dtype, int64_t rows, Placement h) const;
  StreamNorm norm_;
  Param* w_;  // [v, d]
  LogitCap cap_;
  VocabularyLoss loss_;
  Boundary enter_, join_;
  Placement loss_place_;
  int64_t logits_bytes_;
};

}  // namespace weft
