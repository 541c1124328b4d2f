// GPTQ: a matrix in few bits, so that its products with the inputs that it was calibrated on change little.
//   Frantar et al. 2022.   m rows (outputs)   n columns (inputs)
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "weft/models/gptq_format.h"

namespace weft {

// What the columns of a matrix cost: of H = sum over inputs x x^T, on whose diagonal `kGptqDamping` of its mean is
// added, the upper triangular U with H^-1 = U^T U, columns in the order in which they are rounded.
struct GptqCosts {
  int64_t cols = 0;
  std::vector<int64_t> order;  // of the columns
  std::vector<double> factor;  // U [n, n]
};
inline constexpr double kGptqDamping = 0.01;

// `products`: H [n, n], of which a part may be lost to rounding: then it is damped ten times as much, and so on. The
// order is that of the columns; `by_size`: of the diagonal of H, the largest first. Throws NumericsError where a number
// is not finite. Two matrices [n, n] of f64 are in memory meanwhile.
GptqCosts gptq_costs(std::span<const float> products, int64_t cols, bool by_size, int threads);
// Rounds each number by itself.
GptqCosts equal_gptq_costs(int64_t cols);

// Rounds column by column, and gives what that changes in the products to the columns that follow. A group's scale is
// that of its numbers as its first column is reached, of 16 scales the one with the least squared error; its zero point
// is the middle of the codes. Throws NumericsError, beginning with `name`, where a number is not finite or f16 has no
// such scale. The same on any number of threads.
GptqMatrix gptq_rounded(std::span<const float> numbers, const GptqCosts& costs, const GptqFormat& format,
                        std::string_view name, int threads);

}  // namespace weft
