// What decoding keeps of the tokens that a sequence has so far.
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

// Of one layer, which says what the columns are: [max tokens, .] each. Rows are appended.
struct KvCache {
  Tensor k, v;
  int64_t count = 0;  // tokens held
};

}  // namespace weft
