// Kernels: sinks of attention. A block for each row, or for each chunk of rows.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

template <class T>
struct SinkRow {
  const T* sinks;
  Rows<T> o;
  Rows<float> lse;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), e = o.cols / lse.cols;
    const auto with_sink = [&](int64_t h) {
      const float before = lse[i][h], sink = load(sinks + h), most = before > sink ? before : sink;
      return most + logf(expf(before - most) + expf(sink - most));
    };
    block.map(
        o.cols, [&](int64_t j) { return load(o[i] + j) * expf(lse[i][j / e] - with_sink(j / e)); },
        [&](int64_t j, float x) { store(o[i] + j, x); });
    block.map(
        lse.cols, [&](int64_t h) { return with_sink(h); }, [&](int64_t h, float x) { lse[i][h] = x; });
  }
};

// parts[chunk][h]: the sum for dsinks[h] over a chunk of rows.
template <class T>
struct SinkSlopes {
  const T* sinks;
  Rows<const T> o, dout;
  Rows<const float> lse;
  int64_t num_rows, chunk_rows;
  float* parts;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * chunk_rows, e = o.cols / lse.cols;
    const int64_t end = first + chunk_rows < num_rows ? first + chunk_rows : num_rows;
    block.each(lse.cols, [&](int64_t h) {
      float sum = 0;
      for (int64_t i = first; i < end; ++i) {
        float dot = 0;
        for (int64_t j = h * e; j < (h + 1) * e; ++j) dot += load(o[i] + j) * load(dout[i] + j);
        sum -= expf(load(sinks + h) - lse[i][h]) * dot;
      }
      parts[block.index() * lse.cols + h] = sum;
    });
  }
};

}  // namespace weft::gpu
