// What an output head is given of the tokens of a micro-batch to turn states into a loss, and says of them.
//   T tokens here, whole on tp
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

struct HeadTargets {
  Tensor ids, weights;  // i32 [T], stat [T]
  Tensor loss;          // f64 [1]  receives the sum of the weighted losses
  double scale;         // of the gradient of that
};

// What it says of single tokens without training.
struct TokenLosses {
  Tensor nll;          // stat [T]  weighted losses
  Tensor values = {};  // stat [T]  minus weighted values, of a model that predicts them
};

}  // namespace weft
