// From norms, and sums by columns, to their kernels (run_kernels.h).
#pragma once
#include "weft/ops/cuda/launch.h"
#include "weft/ops/cuda/norm.h"

namespace weft::gpu {

template <class L>
void run(L& launcher, const BiasGrad& op) {
  by_float(op.dy.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t each = rows_of_chunk(op.dy.rows()), chunks = blocks_of(op.dy.rows(), each), cols = op.dy.cols();
    const int64_t apart = ColumnThreads::most_sharers(cols) * cols;
    float* parts = launcher.template memory<float>(chunks * apart);
    by_pack(in_packs({&op.dy, &op.x}), [&]<int N>() {
      launcher.launch(chunks,
                      ChunkSums<T, N>{rows<const T>(op.dy), rows<const T>(op.x), op.dy.rows(), each, apart, parts});
    });
    launcher.launch(blocks_of(cols, kLanes), ColumnSums{parts, chunks, cols, apart, flat<float>(op.db), op.accumulate});
  });
}

template <class T>
HeadRows<T> whole_rows(const Tensor& x) {
  return {rows<T>(x), 1, x.cols()};
}
template <class T>
HeadRows<T> head_rows(const Tensor& x, int64_t dim) {
  return {rows<T>(x), x.cols() / dim, dim};
}
inline RowNumbers numbers(const Tensor& x, int64_t heads = 1) {
  if (!x) return {};
  if (heads == 1) return {{x.as<float>(), 1, x.shape.rank() == 1 ? 1 : x.row_stride}, 1};
  return {rows<float>(x), heads};
}

template <class T, class Op>
Weights<T> norm_weights(const Op& op) {
  return {flat<T>(op.w), float(op.offset)};
}

template <class L>
void run(L& launcher, const Norm& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    by_pack(in_packs({&op.x, &op.delta, &op.sum, &op.y, &op.w, &op.b}), [&]<int N>() {
      launcher.launch(blocks_of(op.x.rows(), kWarps),
                      NormRows<T, N>{whole_rows<T>(op.x), whole_rows<T>(op.delta), whole_rows<T>(op.sum),
                                     whole_rows<T>(op.y), norm_weights<T>(op), flat<T>(op.b), numbers(op.mean),
                                     numbers(op.rstd), float(op.eps), op.x.rows()});
    });
  });
}
template <class L>
void run(L& launcher, const NormApply& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    by_pack(in_packs({&op.x, &op.y, &op.w, &op.b}), [&]<int N>() {
      launcher.launch(blocks_of(op.x.rows(), kWarps),
                      NormRowsAgain<T, N>{whole_rows<T>(op.x), whole_rows<T>(op.y), norm_weights<T>(op), flat<T>(op.b),
                                          numbers(op.mean), numbers(op.rstd), op.x.rows()});
    });
  });
}
// For rows [num_rows, width], or for heads.
template <class L, class T, int N>
void norm_backward(L& launcher, NormRowsBackward<T, N> kernel, float* dw, float* db, bool accumulate) {
  kernel.chunk_rows = rows_of_chunk(kernel.num_rows);
  const int64_t chunks = blocks_of(kernel.num_rows, kernel.chunk_rows), width = kernel.x.width;
  const int64_t apart = kernel.parts_apart = ColumnThreads::most_sharers(width) * width;
  kernel.dw_parts = launcher.template memory<float>(chunks * apart);
  if (db != nullptr) kernel.db_parts = launcher.template memory<float>(chunks * apart);
  launcher.launch(chunks, kernel);
  const int64_t blocks = blocks_of(width, kLanes);
  launcher.launch(blocks, ColumnSums{kernel.dw_parts, chunks, width, apart, dw, accumulate});
  if (db != nullptr) launcher.launch(blocks, ColumnSums{kernel.db_parts, chunks, width, apart, db, accumulate});
}
template <class L>
void run(L& launcher, const NormBackward& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    by_pack(in_packs({&op.x, &op.dy, &op.carry, &op.dx, &op.w}), [&]<int N>() {
      norm_backward<L, T, N>(
          launcher,
          {whole_rows<T>(op.x), whole_rows<T>(op.dy), whole_rows<T>(op.carry), whole_rows<T>(op.dx),
           norm_weights<T>(op), numbers(op.mean), numbers(op.rstd), op.x.rows(), 0, 0, nullptr, nullptr},
          flat<float>(op.dw), flat<float>(op.db), op.accumulate);
    });
  });
}
template <class L>
void run(L& launcher, const HeadNorm& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t e = op.w.elements(), heads = op.x.cols() / e, num_rows = op.x.rows() * heads;
    by_pack(in_packs({&op.x, &op.y, &op.w}), [&]<int N>() {
      launcher.launch(blocks_of(num_rows, kWarps), NormRows<T, N>{head_rows<T>(op.x, e),
                                                                  {},
                                                                  {},
                                                                  head_rows<T>(op.y, e),
                                                                  norm_weights<T>(op),
                                                                  nullptr,
                                                                  {},
                                                                  numbers(op.rstd, heads),
                                                                  float(op.eps),
                                                                  num_rows,
                                                                  {rows<const float>(op.squares), float(op.total)}});
    });
  });
}
template <class L>
void run(L& launcher, const HeadNormBackward& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t e = op.w.elements(), heads = op.x.cols() / e;
    by_pack(in_packs({&op.x, &op.dy, &op.dx, &op.w}), [&]<int N>() {
      norm_backward<L, T, N>(launcher,
                             {head_rows<T>(op.x, e),
                              head_rows<T>(op.dy, e),
                              {},
                              head_rows<T>(op.dx, e),
                              norm_weights<T>(op),
                              {},
                              numbers(op.rstd, heads),
                              op.x.rows() * heads,
                              0,
                              0,
                              nullptr,
                              nullptr,
                              {rows<const float>(op.dots), float(op.total)}},
                             flat<float>(op.dw), nullptr, op.accumulate);
    });
  });
}

template <class L>
void run(L& launcher, const RowDots& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.x.rows(),
                    RowDotsOf<T>{rows<const T>(op.x), rows<const T>(op.y), flat<T>(op.w), rows<float>(op.out)});
  });
}

}  // namespace weft::gpu
