// The one sum over ranks: whichever way the operands came, the result has the same bits.
#pragma once
#include <span>

#include "weft/tensor/dtype.h"

namespace weft {

// out[i] = from[0][i] + from[1][i] + ..., in this order and in the dtype (16-bit floats: in f32, rounded once), of n
// elements. `out` may be one of `from`. Knows f64, f32, bf16 and f16; else CheckFailure.
void sum_ranks(std::span<const void* const> from, DType dtype, int64_t n, void* out);
// Throws CheckFailure for a dtype that it does not know.
void check_has_sum(DType dtype);
// The same sum in place of every one of them.
void sum_ranks_in_place(std::span<void* const> ranks, DType dtype, int64_t n);

}  // namespace weft
