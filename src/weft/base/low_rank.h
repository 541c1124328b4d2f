// The product of two narrow matrices that is nearest to a matrix.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

struct LowRank {
  std::vector<double> left;   // [rows, rank]
  std::vector<double> right;  // [rank, cols]
};

// left right, of `rank` <= min(rows, cols), has (nearly) the least sum of squared differences to m [rows, cols] that a
// product of this rank can have: the largest singular values, the root of each in either factor. Rows of `right` are
// orthogonal, the longest first; those that m has not are zeros. Found by multiplying random vectors by m and its
// transpose in turn (Halko et al. 2011, algorithms 4.4 and 5.1), in f64; the same on any number of threads. Blocks.
LowRank nearest_of_rank(std::span<const float> m, int64_t rows, int64_t cols, int64_t rank, int num_threads);

// What is left of m, as a sum of squares, when left right is taken off, factors rounded to f32.
double squares_left(std::span<const float> m, int64_t rows, int64_t cols, const LowRank& near, int num_threads);

}  // namespace weft
