// Compares the bits of two tensors, and counts the elements whose equality proves something.
#pragma once
#include <algorithm>
#include <vector>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

struct BitsReport {
  int64_t apart = 0;    // elements whose bits differ
  int64_t telling = 0;  // in the first tensor: finite, not equal to `anyway`, and not equal to the row above
  int64_t wild = 0;     // of the first tensor: not finite
};

// Block i has the rows i, i + num_blocks, ... `anyway`: values that prove nothing; null: 0.
template <class T>
struct BitsCompared {
  Rows<const T> a, b, anyway;
  int64_t num_rows, num_blocks;
  BitsReport* reports;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    BitsReport report;
    for (int64_t row = block.index(); row < num_rows; row += num_blocks) {
      const T *x = a[row], *y = b[row], *above = row > 0 ? a[row - 1] : nullptr;
      const auto count = [&](const auto& is) {
        return block.fold(a.cols, int64_t{0}, AddUp(), [&](int64_t j) { return is(j) ? int64_t{1} : int64_t{0}; });
      };
      const auto finite = [&](int64_t j) { return load(x + j) - load(x + j) == 0; };
      report.apart += count([&](int64_t j) { return bits(x + j) != bits(y + j); });
      const auto tells = [&](int64_t j) {
        const float it = load(x + j);
        return it != (anyway ? load(anyway[row] + j) : 0) && (above == nullptr || it != load(above + j));
      };
      report.telling += count([&](int64_t j) { return finite(j) && tells(j); });
      report.wild += count([&](int64_t j) { return !finite(j); });
    }
    block.each(1, [&](int64_t) { reports[block.index()] = report; });
  }

 private:
  static WEFT_GPU uint32_t bits(const T* at) {
    if constexpr (sizeof(T) == 2)
      return *reinterpret_cast<const uint16_t*>(at);
    else
      return *reinterpret_cast<const uint32_t*>(at);
  }
};

inline constexpr int64_t kMostBitsReports = 1024;

// Compares a and b. `anyway`: a tensor of their type and size, one row, or none. `there`: kMostBitsReports reports in
// the GPU's memory. Waits for all that was launched. L is a launcher that also has fetch (fast_attention.h).
template <class L>
BitsReport compare_bits(L& launcher, const Tensor& a, const Tensor& b, const Tensor& anyway, BitsReport* there) {
  const int64_t blocks = std::min(a.rows(), kMostBitsReports);
  by_float(a.dtype, [&](auto t) {
    using T = decltype(t);
    Rows<const T> same = rows<const T>(anyway);
    if (anyway && is_vector(anyway)) same.stride = 0;
    launcher.launch(blocks, BitsCompared<T>{rows<const T>(a), rows<const T>(b), same, a.rows(), blocks, there});
  });
  std::vector<BitsReport> reports(static_cast<size_t>(blocks));
  launcher.fetch(reports.data(), there, int64_t(reports.size() * sizeof(BitsReport)));
  BitsReport all;
  for (const BitsReport& r : reports) all.apart += r.apart, all.telling += r.telling, all.wild += r.wild;
  return all;
}

}  // namespace weft::gpu
