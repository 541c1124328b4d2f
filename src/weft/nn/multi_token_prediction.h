// Foretells the token after the next one, beside the output head.
//   t tokens of this rank's stream   d width
#pragma once
#include <string>

#include "weft/nn/block.h"
#include "weft/nn/table_rows.h"
#include "weft/nn/vocabulary_head.h"

namespace weft {

// u = W [norm(embedding of the target); norm(h)], of the model's last normed state h; then a block, a norm and the
// model's own head, whose loss is that of the token after the target.      DeepSeek-V3, 2024, sec. 2.2, eq. 21 to 24
// (the embedding first, as the published weights have it)
//
// All of it happens in the dgrad of the head, as the head's own loss does, so nothing is kept from forward on: it lies
// in the arenas of a layer that is being recomputed. No row sees a later one but through its own target's embedding, so
// the last row of a sequence, which has no token after its target, is computed too and does not count.
class MultiTokenPrediction {
 public:
  struct Spec {
    std::string name;        // of its weights
    std::string block_name;  // of its block's
    StreamNorm::Spec norm;
    Block::Spec block;
    Param* table;            // of tokens, which the model's embedding has too
    double embedding_scale;  // of its rows
    double init_std;
    double loss_coef;  // factor of the loss
  };
  MultiTokenPrediction(ParamStore& params, const Spec& spec, const LayerPlan& plan);

  // The sum of the losses goes to p.batch.mtp_loss. Returns dh [t, d] plus the gradient of loss_coef * mtp_scale *
  // that, of states h [t, d], in scratch; the weights' gradients receive theirs.
  Tensor loss_and_backward(Pass& p, Tensor h, Tensor dh, const VocabularyHead& output) const;

 private:
  double loss_coef_;
  TableRows tokens_;
  StreamNorm token_norm_, state_norm_;
  Linear project_;
  Block block_;
  StreamNorm norm_;
};

}  // namespace weft
