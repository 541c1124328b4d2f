// From an op to its kernels: run(launcher, op). The launcher is a GPU's queue, or for tests a loop over the blocks:
//   launcher.launch(num_blocks, kernel)       calls kernel(block) for each block of the grid, after what was launched
//   launcher.launch_tiles(num_blocks, kernel) the same, for a kernel of tiles (tile_block.h)
//   launcher.has_shared(bytes)                whether a block may have so much memory for tiles
//   launcher.template memory<E>(count)        workspace till the op's end, as its WorkspaceModel says
//   launcher.copied(span)                     a span of the host, readable by kernels till the op's end
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "weft/ops/cuda/attention.h"
#include "weft/ops/cuda/attention_sink.h"
#include "weft/ops/cuda/attention_tiles.h"
#include "weft/ops/cuda/blockwise.h"
#include "weft/ops/cuda/cross_entropy.h"
#include "weft/ops/cuda/dequantise.h"
#include "weft/ops/cuda/distill_top.h"
#include "weft/ops/cuda/embed_gradient.h"
#include "weft/ops/cuda/latent_keys.h"
#include "weft/ops/cuda/launch.h"
#include "weft/ops/cuda/matmul_tiles.h"
#include "weft/ops/cuda/pointwise.h"
#include "weft/ops/cuda/run_experts.h"
#include "weft/ops/cuda/run_norms.h"
#include "weft/ops/cuda/update.h"

namespace weft::gpu {

template <class L>
void run(L& launcher, const Matmul& op) {
  by_float(op.a.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto o) {
      using Out = decltype(o);
      const MatmulTile<T, Out> kernel{
          rows<const T>(op.a), rows<const T>(op.b), rows<Out>(op.out), flat<T>(op.bias), op.m(), op.k(),
          op.trans_a,          op.trans_b,          op.accumulate};
      launcher.launch(blocks_of(op.m(), kernel.kSide) * kernel.tiles_of_row(), kernel);
    };
    op.out.dtype == op.a.dtype ? launch(T{}) : launch(float{});
  });
}

template <class L>
void run(L& launcher, const Embed& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> before = op.accumulate ? rows<const T>(op.out) : Rows<const T>{};
    each_element(launcher, op.out, t,
                 Embedded<T>{flat<int32_t>(op.ids), rows<const T>(op.table), before, op.first, op.table.rows()},
                 {&op.table});
  });
}
template <class L>
void run(L& launcher, const EmbedBackward& op) {
  const int64_t n = op.dy.rows();
  const int32_t* const ids = flat<int32_t>(op.ids);
  int32_t* const order = launcher.template memory<int32_t>(n);
  launcher.launch(blocks_of(n, kThreads), TokensById{ids, n, order});
  by_float(op.dy.dtype, [&](auto t) {
    using T = decltype(t);
    by_pack(in_packs({&op.dy, &op.dtable}), [&]<int N>() {
      launcher.launch(n, EmbedSlopes<T, N>{ids, order, n, rows<const T>(op.dy), rows<float>(op.dtable), op.first,
                                           op.dtable.rows()});
    });
  });
}

template <class L>
void run(L& launcher, const Rope& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t half = op.table.cols() / 2, heads = op.x.cols() / op.head_dim();
    const bool packs = !op.interleaved && half % kPack == 0 && op.head_dim() % kPack == 0 && op.first % kPack == 0;
    by_pack(packs && in_packs({&op.x, &op.table}), [&]<int N>() {
      const Rotated<T, N> kernel{rows<T>(op.x),
                                 flat<int32_t>(op.positions),
                                 rows<const float>(op.table),
                                 op.inverse,
                                 op.head_dim(),
                                 op.first,
                                 op.interleaved,
                                 packs_of(op.x.rows(), heads * (half / N))};
      launcher.launch(kernel.places.blocks(), kernel);
    });
  });
}

template <class L>
void run(L& launcher, const LatentKeys& op) {
  by_float(op.kv.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t r = op.shared.cols(), u = op.v.cols() / op.heads, n = op.k.cols() / op.heads - r;
    each_element(launcher, op.k, t, LatentKey<T>{rows<const T>(op.kv), rows<const T>(op.shared), n, r, u});
    each_element(launcher, op.v, t, LatentValue<T>{rows<const T>(op.kv), n, u});
  });
}
template <class L>
void run(L& launcher, const LatentKeysBackward& op) {
  by_float(op.dkv.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t r = op.dshared.cols(), u = op.dv.cols() / op.heads, n = op.dk.cols() / op.heads - r;
    each_element(launcher, op.dkv, t, LatentGradient<T>{rows<const T>(op.dk), rows<const T>(op.dv), n, r, u});
    each_element(launcher, op.dshared, t, SharedGradient<T>{rows<const T>(op.dk), n, r});
  });
}

template <class L, class Op>
Sight sight_of(L& launcher, const Op& op) {
  WEFT_CHECK(op.heads.dim <= kMostHeadDim && op.heads.value_dim() <= kMostHeadDim, "heads of {}, with values of {}",
             op.heads.dim, op.heads.value_dim());
  const Kept k = kept(op.dropout);
  return {launcher.copied(op.spans), int64_t(op.spans.size()), op.heads, k.key, k.dropped, k.scale};
}
// Whether rows of heads can be copied 16 bytes at a time.
inline bool in_copies(const AttentionHeads& heads, std::initializer_list<const Tensor*> all) {
  const int64_t e = heads.dim, u = heads.value_dim();
  return e % 8 == 0 && u % 8 == 0 && e <= 192 && u <= 128 && std::all_of(all.begin(), all.end(), [](const Tensor* x) {
           return size_of(x->dtype) == 2 && x->row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x->data) % 16 == 0;
         });
}
struct Tiles {
  TileList list;
  int64_t count;
};
// Tiles over the queries of each span, or over its keys.
template <class L>
Tiles tiles_of(L& launcher, std::span<const AttentionSpan> spans, int64_t AttentionSpan::*rows) {
  std::vector<int64_t> first(1, 0);
  for (const AttentionSpan& s : spans) first.push_back(first.back() + blocks_of(s.*rows, kTileRows));
  return {{launcher.copied(std::span<const int64_t>(first)), int64_t(spans.size())}, first.back()};
}
// f.template operator()<Kernel>() with the narrowest of the kernels of tiles that holds such heads, where a block may
// have the memory that it takes; returns whether it may.
template <template <class, int, int> class Kernel, class T, class L, class F>
bool by_width(L& launcher, const AttentionHeads& heads, const F& f) {
  const auto with = [&]<class K>(std::type_identity<K>) {
    if (!launcher.has_shared(K::kSharedBytes)) return false;
    f.template operator()<K>();
    return true;
  };
  const int64_t widest = std::max(heads.dim, heads.value_dim());
  if (widest <= 64) return with(std::type_identity<Kernel<T, 64, 64>>());
  if (widest <= 128) return with(std::type_identity<Kernel<T, 128, 128>>());
  return with(std::type_identity<Kernel<T, 192, 128>>());
}

template <class L>
void run(L& launcher, const Attention& op) {
  const Sight sight = sight_of(launcher, op);
  const Tiles tiles = tiles_of(launcher, op.spans, &AttentionSpan::q_count);
  by_float(op.q.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> q = rows<const T>(op.q), k = rows<const T>(op.k), v = rows<const T>(op.v);
    if constexpr (sizeof(T) == 2) {
      if (in_copies(op.heads, {&op.q, &op.k, &op.v}) &&
          by_width<AttentionTile, T>(launcher, op.heads, [&]<class Kernel>() {
            launcher.launch_tiles(tiles.count * op.heads.q,
                                  Kernel{q, k, v, rows<T>(op.o), rows<float>(op.lse), sight, tiles.list, tiles.count});
          }))
        return;
    }
    launcher.launch(op.q.rows() * op.heads.q, AttentionRow<T>{q, k, v, rows<T>(op.o), rows<float>(op.lse), sight});
  });
}

// Whether every row of keys is in only one span; false also if only sorting could tell.
inline bool keys_apart(std::span<const AttentionSpan> spans) {
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].k_row < spans[i - 1].k_row + spans[i - 1].k_count) return false;
  return true;
}

template <class L>
void run(L& launcher, const AttentionBackward& op) {
  const Sight sight = sight_of(launcher, op);
  const Tiles of_queries = tiles_of(launcher, op.spans, &AttentionSpan::q_count);
  const Tiles of_keys = tiles_of(launcher, op.spans, &AttentionSpan::k_count);
  const int64_t queries = op.q.rows() * op.heads.q;
  const Rows<float> weighted{launcher.template memory<float>(queries), op.heads.q, op.heads.q};
  by_float(op.q.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> q = rows<const T>(op.q), k = rows<const T>(op.k), v = rows<const T>(op.v),
                        o = rows<const T>(op.o), dout = rows<const T>(op.dout);
    const Rows<const float> lse = rows<const float>(op.lse);
    if constexpr (sizeof(T) == 2) {
      if (keys_apart(op.spans) && in_copies(op.heads, {&op.q, &op.k, &op.v, &op.o, &op.dout}) &&
          by_width<AttentionTilesBackward, T>(launcher, op.heads, [&]<class Both>() {
            TileGradient<T> of{q, k, v, o, dout, lse, weighted, sight, of_queries.list};
            launcher.launch_tiles(of_queries.count * op.heads.q,
                                  typename Both::Queries{of, rows<T>(op.dq), of_queries.count});
            of.tiles = of_keys.list;
            launcher.launch_tiles(of_keys.count * op.heads.kv,
                                  typename Both::Keys{of, rows<T>(op.dk), rows<T>(op.dv), of_keys.count});
          }))
        return;
    }
    WEFT_CHECK(op.heads.dim + op.heads.value_dim() <= kMostOfKey, "heads of {}, with values of {}", op.heads.dim,
               op.heads.value_dim());
    const AttentionGradient<T> of{q, k, v, dout, lse, weighted, sight};
    launcher.launch(blocks_of(queries, kThreads),
                    WeightedOutputs<T>{dout, o, weighted, op.q.rows(), op.heads.q, op.heads.value_dim()});
    launcher.launch(queries, AttentionRowBackward<T>{of, rows<T>(op.dq)});
    launcher.launch(op.k.rows() * op.heads.kv, AttentionKeyBackward<T>{of, rows<T>(op.dk), rows<T>(op.dv)});
  });
}

template <class L>
void run(L& launcher, const AttentionMerge& op) {
  const Rows<const float> lse = rows<const float>(op.lse), sum_lse = rows<const float>(op.sum_lse);
  by_float(op.o.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(
        launcher, op.sum, float{},
        AttentionMerged<T>{rows<const T>(op.o), lse, rows<const float>(op.sum), sum_lse, op.o.cols() / op.lse.cols()});
  });
  each_element(launcher, op.sum_lse, float{}, LogAddExp{sum_lse, lse});
}
template <class L>
void run(L& launcher, const AttentionSink& op) {
  by_float(op.o.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.o.rows(), SinkRow<T>{flat<T>(op.sinks), rows<T>(op.o), rows<float>(op.lse)});
  });
}
template <class L>
void run(L& launcher, const AttentionSinkBackward& op) {
  by_float(op.o.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t each = rows_of_chunk(op.o.rows()), chunks = blocks_of(op.o.rows(), each), h = op.sinks.elements();
    float* parts = launcher.template memory<float>(chunks * h);
    launcher.launch(chunks, SinkSlopes<T>{flat<T>(op.sinks), rows<const T>(op.o), rows<const T>(op.dout),
                                          rows<const float>(op.lse), op.o.rows(), each, parts});
    launcher.launch(blocks_of(h, kLanes), ColumnSums{parts, chunks, h, h, flat<float>(op.dsinks), op.accumulate});
  });
}

template <class L>
void run(L& launcher, const GatedUnit& op) {
  by_float(op.a.dtype, [&](auto t) {
    using T = decltype(t);
    if (op.kind == GateKind::clamped)
      return each_element(launcher, op.a, t, ClampedOf<T>{rows<const T>(op.u), float(op.limit)});
    each_element(launcher, op.a, t, GatedOf<T>{rows<const T>(op.u), op.a.cols(), op.kind}, {&op.u});
  });
}
template <class L>
void run(L& launcher, const GatedUnitBackward& op) {
  by_float(op.da.dtype, [&](auto t) {
    using T = decltype(t);
    if (op.kind == GateKind::clamped)
      return launcher.launch(
          op.da.rows() * blocks_of(op.da.cols(), kRun),
          ClampedSlopes<T>{rows<const T>(op.u), rows<const T>(op.da), rows<T>(op.du), float(op.limit)});
    by_pack(in_packs({&op.u, &op.da, &op.du}), [&]<int N>() {
      const GatedSlopes<T, N> kernel{rows<const T>(op.u), rows<const T>(op.da), rows<T>(op.du), op.kind,
                                     packs_of(op.da.rows(), op.da.cols() / N)};
      launcher.launch(kernel.places.blocks(), kernel);
    });
  });
}
template <class L>
void run(L& launcher, const Gelu& op) {
  by_float(op.y.dtype, [&](auto t) {
    each_element(launcher, op.y, t, GeluOf<decltype(t)>{rows<const decltype(t)>(op.x), op.exact}, {&op.x});
  });
}
template <class L>
void run(L& launcher, const GeluBackward& op) {
  by_float(op.dx.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.dx, t, GeluSlope<T>{rows<const T>(op.x), rows<const T>(op.dy), op.exact},
                 {&op.x, &op.dy});
  });
}
template <class L>
void run(L& launcher, const SoftCap& op) {
  each_element(launcher, op.y, float{}, Capped{rows<const float>(op.x), float(op.cap)});
}
template <class L>
void run(L& launcher, const SoftCapBackward& op) {
  by_float(op.dx.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.dx, t, CapSlope<T>{rows<const float>(op.y), rows<const T>(op.dy), float(op.cap)});
  });
}
template <class L>
void run(L& launcher, const Dropout& op) {
  by_float(op.y.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.y, t,
                 DroppedOut<T>{rows<const T>(op.x), flat<int64_t>(op.tokens), op.first, op.total, kept(op.dropout)});
  });
}

template <class T, int N, class Op>
Losses<T, N> losses_of(const Op& op, int64_t first) {
  return {rows<const float>(op.logits),
          flat<int32_t>(op.targets),
          flat<float>(op.weights),
          flat<float>(op.nll),
          rows<T>(op.dlogits),
          float(op.scale),
          first};
}
// f(T{}) of the type of a tensor that may be absent: then f32.
template <class F>
void by_float_of(const Tensor& x, const F& f) {
  by_float(x ? x.dtype : DType::f32, f);
}
template <class L>
void run(L& launcher, const CrossEntropy& op) {
  by_float_of(op.dlogits, [&](auto t) {
    using T = decltype(t);
    by_pack(begin_packs({&op.logits, &op.dlogits}),
            [&]<int N>() { launcher.launch(op.logits.rows(), CrossEntropyRow<T, N>{losses_of<T, N>(op, 0)}); });
  });
}
template <class L>
void run(L& launcher, const CrossEntropyPart& op) {
  by_pack(begin_packs({&op.logits}), [&]<int N>() {
    launcher.launch(op.logits.rows(), CrossEntropyPartRow<N>{rows<const float>(op.logits), flat<int32_t>(op.targets),
                                                             rows<float>(op.parts), op.first});
  });
}
template <class L>
void run(L& launcher, const CrossEntropyJoin& op) {
  by_float_of(op.dlogits, [&](auto t) {
    using T = decltype(t);
    by_pack(begin_packs({&op.logits, &op.dlogits}), [&]<int N>() {
      launcher.launch(op.logits.rows(),
                      CrossEntropyJoinRow<T, N>{losses_of<T, N>(op, op.first), rows<const float>(op.parts),
                                                op.parts.rows(), op.logits.rows()});
    });
  });
}
template <class L>
void run(L& launcher, const DistillPart& op) {
  launcher.launch(op.logits.rows(),
                  DistillPartRow{rows<const float>(op.logits), rows<const float>(op.teacher), flat<int32_t>(op.targets),
                                 rows<float>(op.parts), soft_of(op.loss), op.first});
}
template <class L, class Op, class Teacher>
void run_distill_join(L& launcher, const Op& op, const Teacher& teacher) {
  by_float(op.dlogits.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.logits.rows(),
                    DistillJoinRow<T, Teacher>{rows<const float>(op.parts), rows<const float>(op.logits), teacher,
                                               flat<int32_t>(op.targets), flat<float>(op.weights), flat<float>(op.nll),
                                               flat<float>(op.divergence), rows<T>(op.dlogits), soft_of(op.loss),
                                               float(op.scale), op.first, op.parts.rows(), op.logits.rows()});
  });
}
template <class L>
void run(L& launcher, const DistillJoin& op) {
  run_distill_join(launcher, op, WholeTeacher{rows<const float>(op.teacher)});
}

template <class Op>
Top top_of(const Op& op) {
  return {rows<const int32_t>(op.ids), rows<const float>(op.top), flat<float>(op.lse), op.first};
}
template <class L>
void run(L& launcher, const DistillTopPart& op) {
  launcher.launch(op.logits.rows(),
                  DistillTopPartRow{rows<const float>(op.logits), top_of(op), flat<int32_t>(op.targets),
                                    rows<float>(op.parts), soft_of(op.loss)});
}
template <class L>
void run(L& launcher, const DistillTopJoin& op) {
  run_distill_join(launcher, op, top_of(op));
}

template <class L>
void run(L& launcher, const Add& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.out, t, Sums<T>{rows<const T>(op.x), rows<const T>(op.y), 1, 1}, {&op.x, &op.y});
  });
}
template <class L>
void run(L& launcher, const Axpby& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.out, t, Sums<T>{rows<const T>(op.x), rows<const T>(op.y), float(op.a), float(op.b)},
                 {&op.x, &op.y});
  });
}
// Here b may have another type than y.
template <class L>
void run(L& launcher, const AddRow& op) {
  by_float(op.y.dtype, [&](auto t) {
    by_float(op.b.dtype, [&](auto of_b) {
      using T = decltype(t);
      using B = decltype(of_b);
      each_element(launcher, op.y, t, RowAdded<T, B>{rows<T>(op.y), flat<B>(op.b)}, {&op.y, &op.b});
    });
  });
}
template <class L>
void run(L& launcher, const ScaleColumns& op) {
  by_float(op.y.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.y, t, ColumnScaled<T>{rows<const T>(op.x), flat<float>(op.w), flat<float>(op.squares)});
  });
}
// One of them may be a vector, and the other a matrix of one column.
template <class L>
void run(L& launcher, const Copy& op) {
  if (is_vector(op.from) != is_vector(op.to))
    return run(launcher, Copy{.from = as_column(op.from), .to = as_column(op.to)});
  by_float(op.to.dtype, [&](auto to) {
    by_float(op.from.dtype, [&](auto from) {
      each_element(launcher, op.to, to, Copied<decltype(from)>{rows<const decltype(from)>(op.from)}, {&op.from});
    });
  });
}
template <class L>
void run(L& launcher, const Ones& op) {
  by_float(op.x.dtype, [&](auto t) { each_element(launcher, op.x, t, One()); });
}

// out = the sum of parts, in a tree, which overwrites them.
template <class L>
void add_up(L& launcher, double* parts, int64_t n, double* out) {
  const int64_t runs = std::max<int64_t>(1, blocks_of(n, kTreeRun));
  double* const totals = runs > 1 ? launcher.template memory<double>(runs) : out;
  launcher.launch(runs, TreeTotals{parts, n, totals});
  if (runs > 1) add_up(launcher, totals, runs, out);
}
template <class L, class T, class F>
void reduce(L& launcher, const Tensor& x, const Tensor& out, T, const F& f) {
  const int64_t n = x.elements(), runs = blocks_of(n, kReduceRun);
  double* parts = launcher.template memory<double>(runs);
  launcher.launch(runs, RunSums<T, F>{flat<T>(x), n, parts, f});
  add_up(launcher, parts, runs, flat<double>(out));
}
template <class L>
void run(L& launcher, const Sum& op) {
  op.x.dtype == DType::f64 ? reduce(launcher, op.x, op.out, double{}, AsItIs())
                           : reduce(launcher, op.x, op.out, float{}, AsItIs());
}
template <class L>
void run(L& launcher, const CountNonfinite& op) {
  by_float(op.x.dtype, [&](auto t) { reduce(launcher, op.x, op.out, t, IsNotFinite()); });
}
template <class L>
void run(L& launcher, const SumSquares& op) {
  const int64_t n = op.x.elements(), leaves = blocks_of(n, kSumLeaf);
  double* parts = launcher.template memory<double>(leaves);
  by_pack(begin_packs({&op.x}), [&]<int N>() {
    launcher.launch(blocks_of(leaves, kLeavesOfBlock), LeafSquares<N>{flat<float>(op.x), n, leaves, parts});
  });
  add_up(launcher, parts, leaves, flat<double>(op.out));
}

template <class L>
void run(L& launcher, const AdamW& op) {
  by_float_of(op.value, [&](auto t) {
    using T = decltype(t);
    const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
    launcher.launch(
        blocks_of(op.w.elements(), AdamWStep<T>::kRunOfUpdate),
        AdamWStep<T>{flat<float>(op.w), flat<float>(op.m), flat<float>(op.v), flat<float>(op.grad), flat<T>(op.value),
                     op.w.elements(), float(op.lr), float(op.beta1), float(op.beta2), float(op.eps),
                     float(op.weight_decay), float(op.grad_scale), float(1 / c1), float(1 / c2)});
  });
}
template <class L>
void run(L& launcher, const AdamW8Max& op) {
  launcher.launch(op.m_max.elements(), MomentMaxima{moment_codes(op)});
}
template <class L>
void run(L& launcher, const AdamW8& op) {
  by_float_of(op.value, [&](auto t) {
    using T = decltype(t);
    const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
    launcher.launch(op.m_max.elements(),
                    AdamW8Step<T>{moment_codes(op), flat<float>(op.w), flat<T>(op.value), float(op.lr), float(op.eps),
                                  float(op.weight_decay), float(1 / c1), float(1 / c2)});
  });
}
template <class L>
void run(L& launcher, const MaxRows& op) {
  each_element(launcher, op.out, float{}, LargestOfRows{rows<const float>(op.x), op.x.rows()});
}
template <class L>
void run(L& launcher, const Dequantise& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    if (op.at.as == WeightCodes::int8)
      return each_element(launcher, op.out, t, FromInt8{flat<uint8_t>(op.codes), flat<float>(op.scales), op.at.cols});
    by_pack(in_packs({&op.out}), [&]<int N>() {
      const Nf4Numbers<T, N> kernel(op);
      launcher.launch(kernel.places.blocks(), kernel);
    });
  });
}
template <class L>
void run(L& launcher, const Sgd& op) {
  by_float_of(op.value, [&](auto t) {
    using T = decltype(t);
    launcher.launch(
        blocks_of(op.w.elements(), SgdStep<T>::kRunOfUpdate),
        SgdStep<T>{flat<float>(op.w), flat<float>(op.buf), flat<float>(op.grad), flat<T>(op.value), op.w.elements(),
                   float(op.lr), float(op.momentum), float(op.weight_decay), float(op.grad_scale), op.step == 1});
  });
}

}  // namespace weft::gpu
