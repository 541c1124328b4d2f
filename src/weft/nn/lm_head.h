// From the last stream to the loss: the final norm and an output head. That is a head over the vocabulary with
// cross-entropy, beside which others may predict further tokens or values; or a head that scores tokens.
//   t tokens of this rank's stream   T the same, whole on tp   d width   V vocabulary
#pragma once
#include <optional>
#include <variant>

#include "weft/nn/multi_token_prediction.h"
#include "weft/nn/norm.h"
#include "weft/nn/score_head.h"
#include "weft/nn/vocabulary_head.h"

namespace weft {

class LmHead {
 public:
  struct Spec {
    StreamNorm::Spec norm;
    std::variant<VocabularyHead::Spec, ScoreHead::Spec> output;
    std::optional<ScoreHead::Spec> value = {};  // a value for each token, beside a head over the vocabulary
  };
  LmHead(ParamStore& params, const Spec& spec, const LayerPlan& plan);
  // Declares the weights of such a module, beside a head over the vocabulary.
  void predict_further(ParamStore& params, const MultiTokenPrediction::Spec& spec, const LayerPlan& plan);

  // The sum of the weighted losses of all tokens goes to p.batch.loss; dx [t, d] receives the gradient of loss_scale *
  // loss, and of what further losses and values add, and the weights' gradients theirs.
  void loss_and_backward(Pass& p, Tensor x, Tensor dx) const;
  // logits [n, V] stat, whole on tp, of an x [n, d] placed like the stream. Blocks while ranks exchange. Only of a head
  // over the vocabulary.
  void logits(Pass& p, Tensor x, Tensor logits) const;
  void token_losses(Pass& p, Tensor x, const TokenLosses& to) const;
  // What the output head is given of an x [t, d], to [t, d].
  void states(Pass& p, Tensor x, Tensor to) const;
  const VocabularyHead& vocabulary() const;

 private:
  Tensor normed(Pass& p, StreamNorm::Saved& s, Tensor x) const;
  StreamNorm norm_;
  std::variant<VocabularyHead, ScoreHead> output_;
  std::optional<MultiTokenPrediction> further_;
  std::optional<ScoreHead> value_;
};

}  // namespace weft
