// Ops of optimizer state that is kept in 8 bits. Included by ops.h.
//   n  elements here     b  code blocks that they touch
#pragma once
#include "weft/ops/ops.h"

namespace weft {

// Consecutive elements of a whole tensor, row by row, that share a scale: the largest of their absolute values.
inline constexpr int64_t kCodeBlock = 256;
inline constexpr int kCodes = 256;

// What a code stands for, ascending: dynamic tree quantisation, with a sign or without (Dettmers et al. 2022, "8-bit
// optimizers via block-wise quantization", sec. 1.3 and 2.2). For e = 0 .. 6 the midpoints of 2^(6 - e) equal parts (of
// twice as many without a sign) of [0.1, 1], times 10^-e, and their negatives; 0; 1.
enum class Levels : uint8_t { with_sign, without_sign };
using LevelTable = std::array<float, kCodes>;
constexpr LevelTable make_levels(Levels which) {
  constexpr double kPowers[] = {1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};
  const bool has_sign = which == Levels::with_sign;
  const size_t zero = has_sign ? kCodes / 2 - 1 : 0;
  LevelTable table{};
  size_t above = 0;
  for (int e = 6; e >= 0; --e) {
    const int parts = (has_sign ? 1 : 2) << (6 - e);
    for (int k = 0; k < parts; ++k) {
      const auto level = float((0.1 + 0.9 * (k + 0.5) / parts) * kPowers[e]);
      ++above;
      table[zero + above] = level;
      if (has_sign) table[zero - above] = -level;
    }
  }
  table[kCodes - 1] = 1;
  return table;
}
inline constexpr LevelTable kLevelsWithSign = make_levels(Levels::with_sign),
                            kLevelsWithoutSign = make_levels(Levels::without_sign);
constexpr const LevelTable& levels_of(Levels which) {
  return which == Levels::with_sign ? kLevelsWithSign : kLevelsWithoutSign;
}

// Where n consecutive elements of a part of a tensor lie in the whole of it. The part is a rectangle: rows of `cols`
// elements, `stride` apart in the whole tensor, whose first is the whole tensor's element `origin`. The n elements
// begin at the rectangle's element `first`. A vector, and rows that are whole, are one run: cols == stride.
struct CodeBlocks {
  int64_t origin = 0, cols = 1, stride = 1, first = 0;
  // The number, in the whole tensor, of element i.
  constexpr int64_t index(int64_t i) const { return origin + (first + i) / cols * stride + (first + i) % cols; }
  // The blocks from the first to the last that n elements touch: of narrow columns, also those between.
  constexpr int64_t first_block() const { return index(0) / kCodeBlock; }
  constexpr int64_t num_blocks(int64_t n) const { return n == 0 ? 0 : index(n - 1) / kCodeBlock - first_block() + 1; }
  // Calls f(begin, end) for the runs of the n elements that are of the b-th of these blocks, in order.
  template <class F>
  void for_runs_of(int64_t b, int64_t n, const F& f) const {
    const int64_t block = (first_block() + b) * kCodeBlock;
    const int64_t low = std::max(block, index(0)) - origin,
                  high = std::min(block + kCodeBlock, index(n - 1) + 1) - origin;
    for (int64_t row = low / stride; row * stride < high; ++row) {
      const int64_t from = std::max(low - row * stride, int64_t{0}), to = std::min(cols, high - row * stride);
      if (from < to) f(row * cols + from - first, row * cols + to - first);
    }
  }
  // The elements from the `begin`-th on.
  constexpr CodeBlocks from(int64_t begin) const {
    return {.origin = origin, .cols = cols, .stride = stride, .first = first + begin};
  }
  bool operator==(const CodeBlocks&) const = default;
};

// AdamW's moments in 8 bits, a step in two ops, since ranks may hold parts of one block: between them, m_max and v_max
// become the largest over all ranks that do.
//   m = m_absmax[block] levels[m code],  v likewise (m with a sign, v without);  g, m, v as AdamW has them
// AdamW8Max writes the largest |m| and |v| of each block here, of the new m and v, and changes no state.
// grad [n] stat; m, v u8 [n]; m_absmax, v_absmax, m_max, v_max [b] stat.
struct AdamW8Max {
  static constexpr std::string_view kName = "adamw8_max";
  Tensor grad, m, v, m_absmax, v_absmax, m_max, v_max;
  CodeBlocks at = {};
  double beta1 = 0.9, beta2 = 0.95, grad_scale = 1;
  auto fields() const {
    return std::array{Field{"grad", &grad, Role::in},
                      Field{"m", &m, Role::in},
                      Field{"v", &v, Role::in},
                      Field{"m_absmax", &m_absmax, Role::in},
                      Field{"v_absmax", &v_absmax, Role::in},
                      Field{"m_max", &m_max, Role::out},
                      Field{"v_max", &v_max, Role::out}};
  }
  bool operator==(const AdamW8Max&) const = default;
};
// AdamW8 updates w as AdamW does, with the new m and v in full; then each becomes the code of the level that is nearest
// to it divided by its block's max (the lower one of two; in a block of zeros, the code of 0), and absmax the max.
// w, grad [n] stat; value [n], where it exists, receives w rounded to compute.
struct AdamW8 {
  static constexpr std::string_view kName = "adamw8";
  Tensor w, grad, m, v, m_absmax, v_absmax, m_max, v_max, value = {};
  CodeBlocks at = {};
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  int64_t step = 1;  // from 1
  auto fields() const {
    return std::array{Field{"grad", &grad, Role::in},
                      Field{"m_max", &m_max, Role::in},
                      Field{"v_max", &v_max, Role::in},
                      Field{"w", &w, Role::inout},
                      Field{"m", &m, Role::inout},
                      Field{"v", &v, Role::inout},
                      Field{"m_absmax", &m_absmax, Role::inout},
                      Field{"v_absmax", &v_absmax, Role::inout},
                      Field{"value", &value, Role::out}};
  }
  bool operator==(const AdamW8&) const = default;
};

// out[i] = the largest of x[r, i] over the rows r.   x [rows, n], out [n]; f32 or f64. Of maxima that ranks have sent.
struct MaxRows {
  static constexpr std::string_view kName = "max_rows";
  Tensor x, out;
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"out", &out, Role::out}}; }
  bool operator==(const MaxRows&) const = default;
};

}  // namespace weft
