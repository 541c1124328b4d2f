// How many blocks an op takes.
#pragma once
#include "weft/ops/cuda/pointwise.h"

namespace weft::gpu {

inline int64_t blocks_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

template <class L, class T, class F>
void each_element(L& launcher, const Tensor& out, T, const F& f) {
  const EachElement<T, F> kernel{rows<T>(out), f};
  launcher.launch((is_vector(out) ? 1 : out.rows()) * kernel.runs_of_row(), kernel);
}

}  // namespace weft::gpu
