#include "weft/ops/cpu/dropout.h"

#include <cmath>

#include "weft/base/rng.h"

namespace weft::cpu {
namespace {

template <class T>
void dropout_rows(const Dropout& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const int64_t* tokens = op.tokens.as<int64_t>();
  const uint64_t threshold = uint64_t(std::ceil(op.dropout.p * 0x1p32));
  const float scale = float(1 / (1 - op.dropout.p));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const uint64_t first = uint64_t(tokens[i] * op.total + op.first);
    for (int64_t j = 0; j < x.cols; ++j) {
      const bool dropped = random_bits(op.dropout.key, first + uint64_t(j)) < threshold;
      y[i][j] = dropped ? T(0.0f) : T(float(x[i][j]) * scale);
    }
  }
}

}  // namespace

void dropout(const Dropout& op, Range rows) {
  is_bf16(op.x) ? dropout_rows<bf16>(op, rows) : dropout_rows<float>(op, rows);
}

}  // namespace weft::cpu
