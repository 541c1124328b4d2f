// How many blocks an op takes.
#pragma once
#include "weft/ops/cuda/pointwise.h"

namespace weft::gpu {

inline int64_t blocks_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

// out[i][j] = f(i, j), or the packs that f.at<N>(i, j) gives where it has such and all of `read`, which it reads at
// [i][j] and at a multiple of kPack further, can be moved in packs.
template <class L, class T, class F>
void each_element(L& launcher, const Tensor& out, T, const F& f, std::initializer_list<const Tensor*> read = {}) {
  const int64_t num_rows = is_vector(out) ? 1 : out.rows();
  if constexpr (GivesPacks<F>) {
    if (read.size() > 0 && in_packs({&out}) && in_packs(read)) {
      const EachPack<T, F> kernel{rows<T>(out), f, packs_of(num_rows, rows<T>(out).cols / kPack)};
      return launcher.launch(kernel.places.blocks(), kernel);
    }
  }
  const EachElement<T, F> kernel{rows<T>(out), f};
  launcher.launch(num_rows * kernel.runs_of_row(), kernel);
}

}  // namespace weft::gpu
