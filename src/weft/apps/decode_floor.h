// What decoding cannot do without: the bytes that a token reads.
#pragma once
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/ops/ops.h"
#include "weft/plan/step_data.h"

namespace weft {

// The matrix products of a dry pass, on memory that is not there.
std::vector<Matmul> products_of(const PassData& pass);
double pass_flops(const PassData& pass);

// Bytes of weights that the products of a pass read, each once: of an embedding table only where it is the head, too;
// of experts those that `texts` tokens choose, on average where all are as likely. Vectors (norms, biases) are left
// out.
double weight_bytes_of(const PassData& token, const ModelSpec& model, int64_t texts);

// Rows of keys and values that a token sees, its own included, on average over layers and over the tokens at positions
// [first, last).
double rows_seen(const ModelSpec& model, int64_t first, int64_t last);

}  // namespace weft
