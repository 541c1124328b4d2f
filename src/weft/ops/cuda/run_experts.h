// From an op of experts to its kernels, as run_kernels.h has the others.
#pragma once
#include "weft/ops/cuda/experts.h"
#include "weft/ops/cuda/grouped_tiles.h"
#include "weft/ops/cuda/launch.h"

namespace weft::gpu {

template <class L>
void run(L& launcher, const Route& op) {
  launcher.launch(blocks_of(op.logits.rows(), kThreads),
                  RoutedTokens{rows<const float>(op.logits), flat<float>(op.bias), flat<int32_t>(op.ids),
                               rows<float>(op.weights), op.logits.rows(), op.ids.cols(), op.routing});
}
template <class L>
void run(L& launcher, const RouteBackward& op) {
  by_float(op.dlogits.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(blocks_of(op.logits.rows(), kThreads),
                    RouterSlopes<T>{rows<const float>(op.logits), rows<const float>(op.dweights),
                                    rows<const float>(op.load), flat<float>(op.whole), flat<int32_t>(op.ids),
                                    rows<T>(op.dlogits), op.logits.rows(), op.ids.cols(), op.routing, op.balance});
  });
}
template <class L>
void run(L& launcher, const RouterSums& op) {
  launcher.launch(op.sums.elements(), RouterTotals{rows<const float>(op.logits), rows<const float>(op.load),
                                                   flat<int32_t>(op.ids), flat<double>(op.sums), op.logits.rows(),
                                                   op.ids.cols(), op.first, op.sample_tokens, op.sigmoid});
}
template <class L>
void run(L& launcher, const ExpertLoad& op) {
  launcher.launch(op.load.rows(), SampleLoad{flat<int32_t>(op.ids), rows<float>(op.load), op.ids.rows(), op.ids.cols(),
                                             op.sample_tokens, float(op.scale), op.accumulate});
}
template <class L>
void run(L& launcher, const GroupRows& op) {
  const int64_t pairs = op.ids.elements(), experts = op.offsets.elements() - 1,
                chunks = blocks_of(pairs, kPairsOfChunk);
  int32_t* const counts = launcher.template memory<int32_t>(chunks * experts);
  const PairChunks of{flat<int32_t>(op.ids), pairs, experts, chunks, counts};
  launcher.launch(chunks, CountedPairs{of});
  launcher.launch(1, PairOffsets{of, flat<int32_t>(op.offsets)});
  launcher.launch(chunks,
                  GroupedPairs{of, flat<int32_t>(op.offsets), flat<int32_t>(op.order), flat<int32_t>(op.places)});
}
// As columns of one number where it is a vector, for a row of out is what an index names.
template <class T>
Rows<T> rows_of_vector(const Tensor& t) {
  Rows<T> r = rows<T>(t);
  if (is_vector(t)) r.cols = r.stride = 1;
  return r;
}
template <class L>
void run(L& launcher, const GatherRows& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    const auto out = rows_of_vector<T>(op.out);
    const GatheredRows<T> of{rows_of_vector<const T>(op.x), flat<int32_t>(op.order), op.per};
    if (!is_vector(op.out)) return each_element(launcher, op.out, t, of, {&op.x});
    const EachElement<T, GatheredRows<T>> kernel{out, of};
    launcher.launch(op.out.rows() * kernel.runs_of_row(), kernel);
  });
}
template <class L>
void run(L& launcher, const SumRows& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.out, t, SummedRows<T>{rows<const T>(op.x), flat<int32_t>(op.places), op.places.cols()},
                 {&op.x});
  });
}
template <class L>
void run(L& launcher, const ScaleRows& op) {
  by_float(op.y.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.y, t, ScaledRows<T>{rows<const T>(op.x), flat<float>(op.scale), op.sigmoid});
  });
}
template <class L>
void run(L& launcher, const ScaleRowsBackward& op) {
  by_float(op.dx.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.x.rows(), ScaledRowSlopes<T>{rows<const T>(op.x), rows<const T>(op.dy), flat<float>(op.scale),
                                                    rows<T>(op.dx), flat<float>(op.dscale), op.sigmoid});
  });
}
template <class L>
void run(L& launcher, const GroupedMatmul& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) == 2) {
      const auto by_tiles = [&]<bool kTurned>() {
        const GroupedProductTile<T, kTurned> kernel{rows<const T>(op.x),       rows<const T>(op.w), rows<T>(op.out),
                                                    flat<int32_t>(op.offsets), op.x.rows(),         op.groups(),
                                                    op.rows_of_group()};
        launcher.launch_tiles(kernel.blocks(), kernel);
      };
      if (in_packs({&op.x, &op.w}) && launcher.has_shared(GroupedProductTile<T, false>::kSharedBytes))
        return op.turned ? by_tiles.template operator()<true>() : by_tiles.template operator()<false>();
    }
    each_element(launcher, op.out, t,
                 GroupedProducts<T>{rows<const T>(op.x), rows<const T>(op.w), flat<int32_t>(op.offsets), op.groups(),
                                    op.rows_of_group(), op.turned});
  });
}
template <class L>
void run(L& launcher, const GroupedWeightGrad& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) == 2) {
      const GroupedSlopeTile<T> kernel{
          rows<const T>(op.dy), rows<const T>(op.x), rows<float>(op.dw), flat<int32_t>(op.offsets),
          op.groups(),          op.rows_of_group(),  op.accumulate};
      if (in_packs({&op.dy, &op.x}) && launcher.has_shared(kernel.kSharedBytes))
        return launcher.launch_tiles(op.groups() * kernel.tiles_of_group(), kernel);
    }
    const auto before = op.accumulate ? rows<const float>(op.dw) : Rows<const float>{};
    each_element(launcher, op.dw, float{},
                 GroupedSlopes<T>{rows<const T>(op.dy), rows<const T>(op.x), before, flat<int32_t>(op.offsets),
                                  op.rows_of_group()});
  });
}

}  // namespace weft::gpu
