// What an output head needs to turn the states of a micro-batch's tokens into a loss, and the losses that it gives.
//   T tokens here, whole on tp
#pragma once
#include "weft/nn/pass.h"

namespace weft {

struct HeadTargets {
  Tensor ids, weights;  // i32 [T], stat [T]
  Tensor loss;          // f64 [1]  receives the sum of the weighted losses
  double scale;         // of the gradient of that; with a teacher, of what its Distillation makes of both losses
  const Teaching* teaching = nullptr;  // none: no teacher
};

// The loss of each token, without training.
struct TokenLosses {
  Tensor nll;          // stat [T]  weighted losses
  Tensor values = {};  // stat [T]  minus weighted values, of a model that predicts them
  // Where it is wanted: stat [T, 3 r], CrossEntropyPart's numbers of each of the r parts that the vocabulary is cut
  // into.
  Tensor parts = {};
};

}  // namespace weft
