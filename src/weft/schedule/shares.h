// Shares of a step's micro-batches for data-parallel ranks that are not equally fast. Pure functions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Whole numbers, of which `total` is the sum, in proportion to `weights` (speeds: each finite and above 0): the whole
// parts of the exact shares, and one more where the largest fractions are left (Hamilton's method; of equal ones the
// first). Each is at least 1, for which those with the most above their exact share give. total >= weights.size().
std::vector<int64_t> shares_by_weight(const std::vector<double>& weights, int64_t total);

// "[6, 2]", as in a recipe.
std::string text_of_shares(const std::vector<int64_t>& shares);

}  // namespace weft
