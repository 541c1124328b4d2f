// Scores of all tokens as the next one, of normed states: the output head's matrix, and cross-entropy.
//   t tokens of this rank's stream   T the same, whole on tp   c tokens of a chunk   d width
//   V vocabulary, v the part of it here
#pragma once
#include <string>

#include "weft/nn/adapter.h"
#include "weft/nn/head_targets.h"
#include "weft/nn/logit_cap.h"
#include "weft/nn/vocabulary_loss.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Logits exist for one chunk of tokens at a time: loss, gradient of the logits, and their two products are made while
// they are there. So the weight's gradient is written here and not in a wgrad (docs/decisions/0002), and so is that of
// the adapter that a matrix of the head's own may have.
class VocabularyHead {
 public:
  struct Spec {
    int64_t vocab_size, width;
    Param* table;  // the embedding's, or null for a matrix of its own
    double init_std;
    double softcap = 0;  // on logits; 0: none
  };
  static constexpr std::string_view kMatrix = "head.weight";  // the name of a matrix of its own
  VocabularyHead(ParamStore& params, const Spec& spec, const LayerPlan& plan);

  // The gradient of scale * loss, of states h [t, d] placed like the stream: [t, d] in scratch. The weight's gradient
  // receives its part. A teacher's logits are made chunk by chunk beside the student's, of the states that were kept of
  // it, and take as much memory again: in place of t d' numbers till then, they would be t V.
  Tensor loss_and_backward(Pass& p, Tensor h, const HeadTargets& targets) const;
  // Weighted losses of the single tokens of p.batch, and the parts of all classes' logits (TokenLosses).
  void token_losses(Pass& p, Tensor h, const TokenLosses& to) const;
  // logits [n, V] stat, whole on tp, of an h [n, d] placed like the stream. Blocks while ranks exchange.
  void logits(Pass& p, Tensor h, Tensor logits) const;
  // How losses are held.
  static Placement loss_place(const LayerPlan& plan) {
    return tokens(plan.cut_vocabulary ? Spmd::Invariant : plan.stream);
  }

 private:
  struct Chunk {
    int64_t first, rows;
  };
  // What a teacher gives, if there is one.
  struct Taught {
    const Teaching* teaching = nullptr;
    Tensor states = {};      // [T, d']  none where the teacher is not here
    Tensor divergence = {};  // [T] stat
    VocabularyLoss::Lesson lesson(Pass& p, const Chunk& c) const;
  };
  Taught taught_by(Pass& p, const Teaching* teaching) const;
  std::vector<Chunk> chunks_of(const Pass& p, int64_t tokens, int64_t least) const;
  Tensor project(Pass& p, Adapter::Saved& s, Tensor h) const;
  bool is_adapted(const Pass& p) const { return adapter_ && p.adapters; }
  Tensor alloc_logits(Pass& p, DType dtype, int64_t rows, Placement h) const;
  Param* w_;  // [v, d]
  std::optional<Adapter> adapter_;
  LogitCap cap_;
  VocabularyLoss loss_;
  Boundary enter_, join_;
  Placement loss_place_;
  int64_t logits_bytes_;
};

}  // namespace weft
