// What an output head is given of the tokens of a micro-batch to turn states into a loss.
//   T tokens here, whole on tp
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

struct HeadTargets {
  Tensor ids, weights;  // i32 [T], stat [T]
  Tensor loss;          // f64 [1]  receives the sum of the weighted losses
  double scale;         // of the gradient of that
};

}  // namespace weft
